from django.db import models


class JobPhase(models.TextChoices):
    """Where a training job is, as observed on its cluster."""

    PENDING = "pending", "holds no replica yet"
    STARTING = "starting", "granted, not all pods ready"
    RUNNING = "running", "all granted replicas ready"
    RESIZING = "resizing", "a resize is under way"
    DEGRADED = "degraded", "fewer replicas ready than granted, after having run"
    SUSPENDED = "suspended", "suspended on the cluster"
    SUCCEEDED = "succeeded", "finished"
    FAILED = "failed", "ended with an error"
    DELETED = "deleted", "its object is gone from the cluster"


FINISHED_PHASES = frozenset({JobPhase.SUCCEEDED, JobPhase.FAILED, JobPhase.DELETED})


class ReplicaPhase(models.TextChoices):
    """The least advanced phase of the replica's pods."""

    PENDING = "pending", "waits for a node"
    STARTING = "starting", "bound, not ready"
    RUNNING = "running", "ready"
    TERMINATING = "terminating", "leaving; still holds its accelerators"
    SUCCEEDED = "succeeded", "finished"
    FAILED = "failed", "ended with an error"


class RecoveryStage(models.TextChoices):
    """The stages of a recovery, in order; their sum is the downtime."""

    DETECT = "detect", "detect"
    ABORT = "abort", "abort"
    RENDEZVOUS = "rendezvous", "rendezvous"
    STATE_RESTORE = "state_restore", "state restore"
    DATA_LOADER = "data_loader", "data loader"
    FIRST_STEP = "first_step", "first step"


class FaultSignal(models.TextChoices):
    """What inject-fault may send to a replica's processes in a sandbox."""

    KILL = "KILL", "end at once, as a lost node does"
    TERM = "TERM", "ask to end"
    STOP = "STOP", "hang"
    CONT = "CONT", "go on after STOP"


class FaultCause(models.TextChoices):
    """Why a job lost a replica to a node. All but the last are the node's own doing."""

    NODE_GONE = "node_gone", "the node left the cluster with its pods"
    NODE_NOT_READY = "node_not_ready", "the node isn't ready any more"
    DEVICE_UNHEALTHY = "device_unhealthy", "a device of the node isn't offered any more"
    POD_FAILED = "pod_failed", "the pod ended with an error on a node that looks well"


class EventKind(models.TextChoices):
    """What may happen to a job without interrupting it."""

    LOG_MATCH = "log_match", "a log rule matched, or what it expects did not come"
    STRAGGLER = "straggler", "a replica is slower than its peers"
    STRAGGLER_CLEARED = "straggler_cleared", "a slow replica has caught up"
    CHECKPOINT_FAILED = "checkpoint_failed", "a checkpoint could not be written"
    NOT_ELASTIC = "not_elastic", "the script takes no part in elasticity"
    INTENT_REFUSED = "intent_refused", "an agent refused what it was asked for"
    INTENT_EXPIRED = "intent_expired", "an agent did not answer, or not finish, in time"
