"""What a watcher would have published, from Kubernetes objects."""

from __future__ import annotations

from apps.clusters.models import Cluster
from controlplane.cluster.cache import ClusterCache
from controlplane.cluster.interface import Manifest, Resource, Unreachable, Verb
from controlplane.cluster.resources import JOBS, NODES, PODS, WATCHED
from controlplane.cluster.translate import translate
from tests.manifests import make_node_object, make_owner, make_pod_object
from workers import mailbox
from workers.observer import observation_of


def running_pods(*jobs: Manifest) -> list[Manifest]:
    """A ready pod for each index of each job, one a node, from node n0 on."""
    nodes = iter(range(10_000))
    return [
        make_pod_object(
            f"{job['metadata']['name']}-{index}",
            node=f"n{next(nodes)}",
            index=index,
            owners=make_owner("Job", job["metadata"]["name"]),
            priority=0,
        )
        for job in jobs
        for index in range(job["spec"]["parallelism"])
    ]


def publish(
    cluster: Cluster,
    *jobs: Manifest,
    nodes: int = 8,
    at: float,
    epoch: int | None = None,
    pods: list[Manifest] | None = None,
    lose: Resource | None = None,
    **others: list[Manifest],
) -> None:
    """Publish a snapshot of these jobs with their pods running on nodes of 8 accelerators."""
    cache = ClusterCache(WATCHED, lambda channel: None, clock=lambda: at)
    by_plural = {resource.plural: resource for resource in WATCHED}
    objects = {
        JOBS: list(jobs),
        PODS: [*running_pods(*jobs), *(pods or [])],
        NODES: [make_node_object(f"n{number}") for number in range(nodes)],
        **{by_plural[name]: items for name, items in others.items()},
    }
    for resource in WATCHED:
        cache.replace(resource, objects.get(resource, []))
        cache.alive(resource)
    if lose is not None:
        cache.lost(lose, Unreachable(cluster.name, Verb.WATCH, str(lose), "connection refused."))
    view = cache.view()
    translation = translate(view, cluster.name)
    number = cluster.lease_epoch if epoch is None else epoch
    assert mailbox.publish(observation_of(str(cluster.pk), number, view.version, translation, None))
