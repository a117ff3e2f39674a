"""The contract of a workload kind, and the Indexed Job's own rules."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.cluster import names
from controlplane.cluster.interface import Conflict, Manifest
from controlplane.cluster.kinds import KINDS, elastic_kind, kind_named, kind_of
from controlplane.cluster.kinds.base import (
    ElasticKind,
    Malformed,
    PriorityTable,
    Stamp,
    WorkloadKind,
    command_of,
    epoch_of,
)
from controlplane.engine.types import Requirement, VictimChoice, WorkloadKey
from tests.fakes import FakeCluster
from tests.manifests import make_deployment_object, make_job_object, make_pod_object

PRIORITIES = PriorityTable(
    values={"high": 1000, "low": 10, "normal": 100},
    preemption={"high": "Never", "low": "Never", "normal": "Never"},
    default="normal",
)
STAMP = Stamp(epoch=7, command="42")

#: one entry a kind: an object of 4 replicas of one pod, in namespace `ml`, of class `high`
SAMPLES: dict[str, Manifest] = {
    "Job": make_job_object("llama", "ml", parallelism=4, priority_class="high"),
    "Deployment": make_deployment_object("llama", "ml", replicas=4, priority_class="high"),
}
KIND_IDS = [kind.resource.kind for kind in KINDS]


@pytest.mark.parametrize("kind", KINDS, ids=KIND_IDS)
def test_every_kind_has_a_sample_and_is_found_by_name(kind: WorkloadKind) -> None:
    name = kind.resource.kind
    assert name in SAMPLES
    assert kind_named(name) is kind
    assert kind_of(SAMPLES[name]) is kind
    assert elastic_kind(name) is (kind if isinstance(kind, ElasticKind) else None)


@pytest.mark.parametrize("kind", KINDS, ids=KIND_IDS)
def test_observe(kind: WorkloadKind) -> None:
    sample = SAMPLES[kind.resource.kind]
    assert kind.discover(sample)
    seen = kind.observe(sample, PRIORITIES)
    assert seen.key == WorkloadKey(kind.resource.kind, "ml", "llama")
    assert seen.uid == "uid-llama"
    assert seen.granted == 4
    assert (seen.priority, seen.priority_class) == (1000, "high")
    assert (seen.team, seen.queue, seen.epoch) == ("ml", "", 0)
    assert not seen.suspended
    assert not seen.finished
    assert seen.managed is isinstance(kind, ElasticKind)
    shape = kind.shape(sample)
    assert shape.pods_per_replica == 1
    assert shape.requests["nvidia.com/gpu"] == 8


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if isinstance(kind, ElasticKind)], ids=lambda k: k.resource.kind
)
def test_resize_is_one_conditional_write_that_names_its_author(kind: ElasticKind) -> None:
    cluster = FakeCluster()
    cluster.put(kind.resource, SAMPLES[kind.resource.kind])
    before = cluster.get(kind.resource, "ml", "llama")
    for write in kind.resize(before, 2, (), STAMP):
        cluster.patch(write.resource, write.namespace, write.name, write.body)
    after = cluster.get(kind.resource, "ml", "llama")
    assert kind.observe(after, PRIORITIES).granted == 2
    assert (epoch_of(after), command_of(after)) == (7, "42")
    stale, *_ = kind.resize(before, 3, (), STAMP)  # decided on what is no longer so
    with pytest.raises(Conflict):
        cluster.patch(stale.resource, stale.namespace, stale.name, stale.body)
    assert kind.observe(cluster.get(kind.resource, "ml", "llama"), PRIORITIES).granted == 2


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if isinstance(kind, ElasticKind)], ids=lambda k: k.resource.kind
)
def test_zero_stops_and_admit_starts_again(kind: ElasticKind) -> None:
    cluster = FakeCluster()
    cluster.put(kind.resource, SAMPLES[kind.resource.kind])
    for write in kind.resize(cluster.get(kind.resource, "ml", "llama"), 0, (), STAMP):
        cluster.patch(write.resource, write.namespace, write.name, write.body)
    stopped = kind.observe(cluster.get(kind.resource, "ml", "llama"), PRIORITIES)
    assert (stopped.granted, stopped.suspended, stopped.finished) == (0, True, False)
    for write in kind.admit(cluster.get(kind.resource, "ml", "llama"), 3, STAMP):
        cluster.patch(write.resource, write.namespace, write.name, write.body)
    started = kind.observe(cluster.get(kind.resource, "ml", "llama"), PRIORITIES)
    assert (started.granted, started.suspended) == (3, False)


def test_indexed_job_changes_parallelism_and_completions_together() -> None:
    job = make_job_object(parallelism=4, annotations={names.PODS_PER_REPLICA: "2"})
    kind = elastic_kind("Job")
    assert kind is not None
    (write,) = kind.resize(job, 3, ("llama-3",), STAMP)
    assert write.body == {
        "metadata": {
            "resourceVersion": job["metadata"]["resourceVersion"],
            "annotations": {names.EPOCH: "7", names.COMMAND: "42"},
        },
        "spec": {"parallelism": 6, "completions": 6},
    }
    assert kind.resize(job, 0, (), STAMP)[0].body["spec"] == {"suspend": True}


@pytest.mark.parametrize(
    ("index", "pods_per_replica", "want"),
    [
        ("0", "1", 0),
        ("3", "1", 3),
        ("3", "2", 1),
        ("7", "4", 1),
        (None, "1", None),
        ("x", "1", None),
    ],
)
def test_replica_index(index: str | None, pods_per_replica: str, want: int | None) -> None:
    kind = elastic_kind("Job")
    assert kind is not None
    notes = {names.COMPLETION_INDEX: index} if index is not None else {}
    pod = make_pod_object(annotations=notes)
    job = make_job_object(parallelism=8, annotations={names.PODS_PER_REPLICA: pods_per_replica})
    assert kind.replica_index(pod, kind.shape(job)) == want


MALFORMED: dict[str, tuple[dict[str, Any], str]] = {
    "pods per replica is a word": ({"annotations": {names.PODS_PER_REPLICA: "four"}}, "'four'"),
    "pods per replica is zero": ({"annotations": {names.PODS_PER_REPLICA: "0"}}, "from 1 to"),
    "pods per replica is huge": (
        {"annotations": {names.PODS_PER_REPLICA: "9" * 5000}},
        "from 1 to",
    ),
    "queue is too long": ({"annotations": {names.QUEUE: "q" * 254}}, "at most 253"),
    "pods per replica is negative": ({"annotations": {names.PODS_PER_REPLICA: "-1"}}, "'-1'"),
    "pods per replica is a fraction": ({"annotations": {names.PODS_PER_REPLICA: "1.5"}}, "whole"),
    "not a multiple": (
        {"parallelism": 5, "annotations": {names.PODS_PER_REPLICA: "2"}},
        "multiple of the 2 pods",
    ),
    "epoch was damaged": ({"annotations": {names.EPOCH: "yesterday"}}, "'yesterday'"),
    "weight is zero": ({"annotations": {names.WEIGHT: "0"}}, "above 0"),
    "weight is negative": ({"annotations": {names.WEIGHT: "-2"}}, "'-2'"),
    "weight is no number": ({"annotations": {names.WEIGHT: "nan"}}, "'nan'"),
    "weight is huge": ({"annotations": {names.WEIGHT: "1e400"}}, "'1e400'"),
    "a victim is no name": ({"annotations": {names.VICTIMS: "llama-1,Llama 2"}}, "'Llama 2'"),
    "too many victims": (
        {"annotations": {names.VICTIMS: ",".join(f"p{i}" for i in range(1001))}},
        "1001 pods",
    ),
    "topology is no label": ({"annotations": {names.TOPOLOGY_REQUIRED: "my rack"}}, "'my rack'"),
    "topology is empty": ({"annotations": {names.TOPOLOGY_PREFERRED: ""}}, "a node label"),
    "both wishes at once": (
        {"annotations": {names.TOPOLOGY_PREFERRED: "rack", names.TOPOLOGY_REQUIRED: "rack"}},
        "Keep one of",
    ),
    "cores of Neuron devices": (
        {
            "pod_spec": {
                "containers": [{"resources": {"limits": {"aws.amazon.com/neuroncore": "4"}}}]
            }
        },
        "ask for aws.amazon.com/neuron",
    ),
    "not indexed": ({"mode": "NonIndexed"}, "set it to Indexed"),
    "completions differ": ({"parallelism": 4, "completions": 8}, "spec.parallelism \\(4\\)"),
    "a quantity that isn't one": (
        {"pod_spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "many"}}}]}},
        "'many'",
    ),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_job_is_refused_by_field_value_and_remedy(name: str) -> None:
    fields, want = MALFORMED[name]
    kind = kind_named("Job")
    assert kind is not None
    with pytest.raises(Malformed, match=want) as caught:
        kind.observe(make_job_object(**fields), PRIORITIES)
    assert caught.value.field
    assert caught.value.remedy


WISHES: dict[str, tuple[dict[str, str], dict[str, str], dict[str, Any]]] = {
    # annotations of the job, of its pod template -> what of the workload
    "none": (
        {},
        {},
        {"weight": 1.0, "hints": (), "topology": "", "topology_required": False},
    ),
    "weight": ({names.WEIGHT: "2.5"}, {}, {"weight": 2.5}),
    "victims": (
        {names.VICTIMS: "llama-3, llama-1,,llama-3"},
        {},
        {"hints": ("llama-3", "llama-1")},
    ),
    "topology required": (
        {names.TOPOLOGY_REQUIRED: "example.com/rack"},
        {},
        {"topology": "example.com/rack", "topology_required": True},
    ),
    "topology preferred": (
        {names.TOPOLOGY_PREFERRED: "kubernetes.io/hostname"},
        {},
        {"topology": "kubernetes.io/hostname", "topology_required": False},
    ),
    "in Kueue's words, on the template": (
        {},
        {names.KUEUE_TOPOLOGY_REQUIRED: "rack"},
        {"topology": "rack", "topology_required": True},
    ),
    "ours come before Kueue's": (
        {names.TOPOLOGY_PREFERRED: "block"},
        {names.KUEUE_TOPOLOGY_REQUIRED: "rack"},
        {"topology": "block", "topology_required": False},
    ),
}


@pytest.mark.parametrize("name", WISHES)
def test_wishes(name: str) -> None:
    notes, template_notes, want = WISHES[name]
    kind = kind_named("Job")
    assert kind is not None
    job = make_job_object(annotations=notes)
    job["spec"]["template"]["metadata"]["annotations"] = template_notes
    seen = kind.observe(job, PRIORITIES)
    found = {
        "weight": seen.weight,
        "hints": seen.hints,
        "topology": seen.shape.topology,
        "topology_required": seen.shape.topology_required,
    }
    assert {field: found[field] for field in want} == want


def test_who_chooses_what_leaves() -> None:
    chosen = {
        kind.resource.kind: kind.observe(SAMPLES[kind.resource.kind], PRIORITIES).victims
        for kind in KINDS
    }
    assert chosen == {"Job": VictimChoice.HIGHEST_INDEX, "Deployment": VictimChoice.NAMED}


def test_required_node_affinity_is_part_of_the_shape() -> None:
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    job = make_job_object(pod_spec={"containers": [], "affinity": {"nodeAffinity": required}})
    kind = kind_named("Job")
    assert kind is not None
    assert kind.shape(job).affinity == ((Requirement("zone", "In", ("a",)),),)


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        ({}, (100, "normal")),  # the cluster's default class
        ({"priority_class": "low"}, (10, "low")),
        ({"priority_class": "unknown"}, (0, "unknown")),
        ({"pod_spec": {"containers": [], "priority": 55}}, (55, "")),
    ],
)
def test_priority(fields: dict[str, Any], want: tuple[int, str]) -> None:
    kind = kind_named("Job")
    assert kind is not None
    seen = kind.observe(make_job_object(**fields), PRIORITIES)
    assert (seen.priority, seen.priority_class) == want


@pytest.mark.parametrize(
    ("fields", "discovered", "finished"),
    [
        ({}, True, False),
        ({"finished": "Complete"}, True, True),
        ({"finished": "Failed"}, True, True),
        ({"managed": False}, True, False),
        ({"managed": False, "finished": "Complete"}, False, True),
    ],
)
def test_finished_jobs_are_kept_while_managed(
    fields: dict[str, Any], discovered: bool, finished: bool
) -> None:
    kind = kind_named("Job")
    assert kind is not None
    job = make_job_object(**fields)
    assert kind.discover(job) is discovered
    assert kind.observe(job, PRIORITIES).finished is finished
