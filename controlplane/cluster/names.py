"""Labels and annotations that we read and write. The only place where they are spelled."""

MANAGED = "concertina.dev/managed"  # label: "true"
TEAM = "concertina.dev/team"  # label: who holds the capacity, in charts
POLICY = "concertina.dev/elasticity-policy"  # annotation: name of a policy in our record
QUEUE = "concertina.dev/queue"  # annotation
PODS_PER_REPLICA = "concertina.dev/pods-per-replica"  # annotation, default 1

EPOCH = "concertina.dev/epoch"  # annotation, ours: fencing epoch of the last write
COMMAND = "concertina.dev/command"  # annotation, ours: id of the last command applied

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"

#: a node's pool: the first of these labels that it carries
POOL_LABELS: tuple[str, ...] = (
    "concertina.dev/pool",
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "karpenter.sh/nodepool",
    "agentpool",
)
DEFAULT_POOL = "default"

#: extended resources that count as accelerators; never added up across names
ACCELERATORS: frozenset[str] = frozenset(
    {
        "nvidia.com/gpu",
        "amd.com/gpu",
        "aws.amazon.com/neuron",
        "concertina.dev/cpu-device",
    }
)

#: labels that say how many accelerators a node will have once its device plugin is up
EXPECTED_LABELS: tuple[tuple[str, str], ...] = (
    ("nvidia.com/gpu.count", "nvidia.com/gpu"),
    ("cloud.google.com/gke-accelerator-count", "nvidia.com/gpu"),
    ("karpenter.k8s.aws/instance-gpu-count", "nvidia.com/gpu"),
)
