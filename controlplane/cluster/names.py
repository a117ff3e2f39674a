"""Labels, annotations, taints and resources that we read and write. The only place where they are
spelled."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

MANAGED = "concertina.dev/managed"  # label: "true"
TEAM = "concertina.dev/team"  # label: who holds the capacity, in charts
POLICY = "concertina.dev/elasticity-policy"  # annotation: name of a policy in our record
QUEUE = "concertina.dev/queue"  # annotation
PODS_PER_REPLICA = "concertina.dev/pods-per-replica"  # annotation, default 1
WEIGHT = "concertina.dev/weight"  # annotation: part among equals of its queue, default 1
VICTIMS = "concertina.dev/victims"  # annotation: pods to leave first, separated by commas
TOPOLOGY_REQUIRED = "concertina.dev/topology-required"  # annotation: a node label
TOPOLOGY_PREFERRED = "concertina.dev/topology-preferred"  # annotation: a node label
#: Kueue's words for the same, on the pod template (KEP-2724, Topology Aware Scheduling)
KUEUE_TOPOLOGY_REQUIRED = "kueue.x-k8s.io/podset-required-topology"
KUEUE_TOPOLOGY_PREFERRED = "kueue.x-k8s.io/podset-preferred-topology"

EPOCH = "concertina.dev/epoch"  # annotation, ours: fencing epoch of the last write
COMMAND = "concertina.dev/command"  # annotation, ours: id of the last command applied

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
#: annotation of a pod: a ReplicaSet that shrinks gives up the lowest first (KEP-2255)
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"

#: a node's pool: the first of these labels that it carries
POOL_LABELS: tuple[str, ...] = (
    "concertina.dev/pool",
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "karpenter.sh/nodepool",
    "agentpool",
)
DEFAULT_POOL = "default"

# -- accelerators ------------------------------------------------------------------------------

GPU = "nvidia.com/gpu"
TPU = "google.com/tpu"
NEURON = "aws.amazon.com/neuron"
#: the same devices under their older name, and their cores: a node advertises all three at once
NEURON_DEVICE = "aws.amazon.com/neurondevice"
NEURON_CORE = "aws.amazon.com/neuroncore"

#: extended resources that count as accelerators; never added up across names. What a device plugin
#: advertises beside its devices (monitoring, memory, network) is none.
ACCELERATORS: frozenset[str] = frozenset(
    {
        GPU,
        # replicas of time-slicing or MPS, where the device plugin renames them
        "nvidia.com/gpu.shared",
        "amd.com/gpu",
        NEURON,
        NEURON_DEVICE,
        NEURON_CORE,
        TPU,
        "habana.ai/gaudi",
        "gpu.intel.com/i915",
        "gpu.intel.com/xe",
        "concertina.dev/cpu-device",
    }
)
#: slices of a device, each profile a resource of its own: MIG with the mixed strategy (with the
#: single one they are advertised as nvidia.com/gpu), and AMD's compute partitions (`mixed` naming)
SLICES: tuple[str, ...] = (
    "nvidia.com/mig-",
    "amd.com/spx_",
    "amd.com/dpx_",
    "amd.com/qpx_",
    "amd.com/cpx_",
)


@lru_cache(maxsize=1024)
def is_accelerator(resource: str) -> bool:
    """Whether an extended resource counts as an accelerator."""
    return resource in ACCELERATORS or resource.startswith(SLICES)


def vendor(resource: str) -> str:
    """Whose device plugin advertises it: the domain of its name."""
    return resource.partition("/")[0]


class Promise(NamedTuple):
    """A label that says how many accelerators a node will have once its device plugin is up; of
    nodes where the label `given` has that value, if one is named ("" for any value)."""

    label: str
    resource: str
    given: str = ""
    value: str = ""


#: the first that a node carries, for each resource
EXPECTED_LABELS: tuple[Promise, ...] = (
    Promise("nvidia.com/gpu.count", GPU),
    Promise("cloud.google.com/gke-accelerator-count", TPU, "cloud.google.com/gke-tpu-accelerator"),
    Promise("cloud.google.com/gke-accelerator-count", GPU, "cloud.google.com/gke-accelerator"),
    Promise(
        "karpenter.k8s.aws/instance-gpu-count",
        GPU,
        "karpenter.k8s.aws/instance-gpu-manufacturer",
        "nvidia",
    ),
    Promise(
        "karpenter.k8s.aws/instance-gpu-count",
        "amd.com/gpu",
        "karpenter.k8s.aws/instance-gpu-manufacturer",
        "amd",
    ),
    Promise(
        "karpenter.k8s.aws/instance-accelerator-count",
        NEURON,
        "karpenter.k8s.aws/instance-accelerator-manufacturer",
        "aws",
    ),
)
#: GPU feature discovery: how the devices are cut, and a label `<profile resource>.count` for each.
#: With `mixed`, `nvidia.com/gpu.count` counts the cut devices too, which are never offered whole.
MIG_STRATEGY = "nvidia.com/mig.strategy"
MIG_PREFIX = "nvidia.com/mig-"

# -- nodes that leave --------------------------------------------------------------------------

NOT_READY = "node.kubernetes.io/not-ready"  # taint: the kubelet says so
UNREACHABLE = "node.kubernetes.io/unreachable"  # taint: the kubelet says nothing

#: annotation of a node, ours: when it will be taken down, RFC 3339
MAINTENANCE_AT = "concertina.dev/maintenance-at"

MAINTENANCE = "maintenance"
INTERRUPTION = "interruption"
DRAIN = "drain"


class Sign(NamedTuple):
    """A taint or label that says that a node leaves; with this value, if one is named."""

    key: str
    kind: str
    value: str = ""


#: `DeletionCandidateOfClusterAutoscaler` is not among them: it only marks a node that the
#: autoscaler would remove if it stays empty, and one that gets work stays
DEPARTURE_TAINTS: tuple[Sign, ...] = (
    # github.com/aws/aws-node-termination-handler, pkg/node
    Sign("aws-node-termination-handler/spot-itn", INTERRUPTION),
    Sign("aws-node-termination-handler/rebalance-recommendation", INTERRUPTION),
    Sign("aws-node-termination-handler/scheduled-maintenance", MAINTENANCE),
    Sign("aws-node-termination-handler/asg-lifecycle-termination", DRAIN),
    # karpenter.sh, concepts/disruption: since v1.0, and before it
    Sign("karpenter.sh/disrupted", DRAIN),
    Sign("karpenter.sh/disruption", DRAIN, "disrupting"),
    # GKE, "Manage GKE node disruption for GPUs and TPUs"
    Sign("cloud.google.com/impending-node-termination", INTERRUPTION),
    Sign("cloud.google.com/maintenance-window-started", MAINTENANCE),
    # AKS node auto-drain and auto-repair. `kubernetes.azure.com/scalesetpriority` only says that a
    # node is of the spot kind, not that it leaves
    Sign("remediator.kubernetes.azure.com/unschedulable", INTERRUPTION),
    # github.com/kubernetes/autoscaler, cluster-autoscaler/utils/taints: the value is when it was
    # marked, not when it goes
    Sign("ToBeDeletedByClusterAutoscaler", DRAIN),
    # github.com/medik8s/node-maintenance-operator
    Sign("medik8s.io/drain", MAINTENANCE),
    # kubernetes.io, reference/labels-annotations-taints
    Sign("node.kubernetes.io/out-of-service", DRAIN),
    Sign("node.cloudprovider.kubernetes.io/shutdown", DRAIN),
)
DEPARTURE_LABELS: tuple[Sign, ...] = (
    # GKE: the node's pods are being stopped for maintenance of its host
    Sign("cloud.google.com/active-node-maintenance", MAINTENANCE, "ONGOING"),
    # SageMaker HyperPod, automatic node recovery
    Sign("sagemaker.amazonaws.com/node-health-status", DRAIN, "UnschedulablePendingReplacement"),
    Sign("sagemaker.amazonaws.com/node-health-status", DRAIN, "UnschedulablePendingReboot"),
)
#: label: when maintenance of the node's host begins, unix seconds (GKE, "Monitor host maintenance")
GKE_MAINTENANCE_TIME = "cloud.google.com/scheduled-maintenance-time"
