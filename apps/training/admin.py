from django.contrib import admin

from apps.core.administration import ReadOnlyAdmin
from apps.training.models import (
    JobEvent,
    NodeFault,
    RecoveryEvent,
    Replica,
    RunAttempt,
    ScalingPoint,
    TrainingJob,
)


@admin.register(TrainingJob)
class TrainingJobAdmin(ReadOnlyAdmin):
    list_display = (
        "name", "namespace", "cluster", "team", "phase",
        "desired", "granted", "running", "productive", "policy_error",
    )  # fmt: skip
    list_filter = ("cluster", "phase", "team")
    search_fields = ("name", "namespace", "uid")


@admin.register(Replica)
class ReplicaAdmin(ReadOnlyAdmin):
    list_display = ("job", "index", "pod_name", "node_name", "phase", "ready")


@admin.register(RunAttempt)
class RunAttemptAdmin(ReadOnlyAdmin):
    list_display = ("attempt", "job", "started_at", "ended_at", "last_step")


@admin.register(RecoveryEvent)
class RecoveryEventAdmin(ReadOnlyAdmin):
    list_display = ("started_at", "job", "kind", "duration_s", "step")
    list_filter = ("kind",)


@admin.register(JobEvent)
class JobEventAdmin(ReadOnlyAdmin):
    list_display = ("at", "job", "kind", "code", "replica", "sentence")
    list_filter = ("kind",)


@admin.register(ScalingPoint)
class ScalingPointAdmin(ReadOnlyAdmin):
    list_display = ("job", "replicas", "samples_per_s", "samples", "updated_at")


@admin.register(NodeFault)
class NodeFaultAdmin(ReadOnlyAdmin):
    list_display = ("at", "cluster", "node_name", "cause", "job")
    list_filter = ("cluster", "cause")
    search_fields = ("node_name",)
