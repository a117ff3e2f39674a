from django.db import models


class PreemptionPolicy(models.TextChoices):
    """What a pending workload of this class may take from others of lower priority."""

    NEVER = "Never", "never takes anything back"
    RECLAIM_ELASTIC = "ReclaimElastic", "shrinks elastic jobs down to their minimum"
    PREEMPT_WHOLE = "PreemptWhole", "shrinks elastic jobs, then preempts whole jobs"


class Objective(models.TextChoices):
    """What a queue shares its accelerators by. The same values as the engine's own (a test holds
    them together)."""

    FAIR_SHARE = "fair_share", "fair share, by weight"
    COMPLETION_TIME = "completion_time", "least time to completion"
    THROUGHPUT = "throughput", "most throughput"


class PrioritySource(models.TextChoices):
    """Where the class comes from; one from the cluster is read-only here."""

    CLUSTER = "cluster", "observed on a cluster"
    RECORD = "record", "written here"


# Kubernetes: user classes go up to one billion, the system's own to two billion and 1000.
LOWEST_PRIORITY = -(2**31)
HIGHEST_PRIORITY = 2_000_001_000
HIGHEST_USER_PRIORITY = 1_000_000_000
