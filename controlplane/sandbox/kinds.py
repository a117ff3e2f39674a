"""The Kubernetes kinds that the sandbox serves.

One row a kind; everything else (routes, discovery, tables, admission) looks a kind up here.
Names and groups are those of the Kubernetes API reference.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KindInfo:
    """What the API machinery needs to know of one kind.

    `generation`: metadata.generation counts the changes of spec, as the real server does.
    `default_propagation`: what a DELETE without propagationPolicy means (batch/v1 orphans).
    `unconditional_update`: whether a PUT without resourceVersion is allowed.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    has_status: bool = True
    has_scale: bool = False
    generation: bool = False
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    default_propagation: str = "Background"
    unconditional_update: bool = True

    @property
    def api_version(self) -> str:
        """`v1` for the core group, else `group/version`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """The qualified resource as the server's messages name it: `jobs.batch`, `pods`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def __str__(self) -> str:
        return self.kind


NAMESPACE = KindInfo("", "v1", "namespaces", "Namespace", False, short_names=("ns",))
NODE = KindInfo("", "v1", "nodes", "Node", False, short_names=("no",))
POD = KindInfo("", "v1", "pods", "Pod", True, short_names=("po",), categories=("all",))
EVENT = KindInfo("", "v1", "events", "Event", True, has_status=False, short_names=("ev",))
SECRET = KindInfo("", "v1", "secrets", "Secret", True, has_status=False)
CONFIGMAP = KindInfo(
    "", "v1", "configmaps", "ConfigMap", True, has_status=False, short_names=("cm",)
)
DEPLOYMENT = KindInfo(
    "apps", "v1", "deployments", "Deployment", True,
    has_scale=True, generation=True, short_names=("deploy",), categories=("all",),
)  # fmt: skip
REPLICASET = KindInfo(
    "apps", "v1", "replicasets", "ReplicaSet", True,
    has_scale=True, generation=True, short_names=("rs",), categories=("all",),
)  # fmt: skip
JOB = KindInfo(
    "batch", "v1", "jobs", "Job", True,
    generation=True, categories=("all",), default_propagation="Orphan",
)  # fmt: skip
LEASE = KindInfo(
    "coordination.k8s.io", "v1", "leases", "Lease", True,
    has_status=False, unconditional_update=False,
)  # fmt: skip
PRIORITYCLASS = KindInfo(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False,
    has_status=False, generation=True, short_names=("pc",),
)  # fmt: skip

KINDS: tuple[KindInfo, ...] = (
    NAMESPACE, NODE, POD, EVENT, SECRET, CONFIGMAP,
    DEPLOYMENT, REPLICASET, JOB, LEASE, PRIORITYCLASS,
)  # fmt: skip

BY_KIND: dict[str, KindInfo] = {info.kind: info for info in KINDS}
BY_RESOURCE: dict[tuple[str, str, str], KindInfo] = {
    (info.group, info.version, info.plural): info for info in KINDS
}


def kind_of(kind: KindInfo | str) -> KindInfo:
    """Accept a KindInfo or a kind's name (`"Pod"`); KeyError for an unknown name."""
    return kind if isinstance(kind, KindInfo) else BY_KIND[kind]
