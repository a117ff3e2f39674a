from django.db import models


class CapacityState(models.TextChoices):
    """What an accelerator is doing, from the engine's accounting: disjoint, adding up to the
    total. The same names as `controlplane.engine.accounting.CapacityState` (a test holds them
    together)."""

    FREE = "free", "free"
    USED = "used", "held by a pod"
    USED_UNHEALTHY = "used_unhealthy", "held by a pod on a bad node or device"
    TERMINATING = "terminating", "held by a pod that is leaving"
    RESERVED = "reserved", "granted, not visible yet"
    CORDONED = "cordoned", "on a cordoned node"
    NOT_READY = "not_ready", "on a node that isn't ready"
    BOOTING = "booting", "on a node whose device plugin isn't up"
    TAINTED = "tainted", "on a node with a taint that workloads don't tolerate"
