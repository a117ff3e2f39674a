"""Training jobs, what their trainers report, and injected faults."""

from __future__ import annotations

import django_filters
from django.conf import settings
from django.db.models import QuerySet
from django.utils.module_loading import import_string
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework import mixins, viewsets
from rest_framework.decorators import action
from rest_framework.exceptions import PermissionDenied
from rest_framework.filters import OrderingFilter
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.core.api.errors import Refused, Unavailable
from apps.core.api.filters import StrictFilterSet
from apps.core.api.parsers import RawJSONParser
from apps.training import actions, ingest, selectors
from apps.training.api.serializers import (
    AttemptSerializer,
    InjectedFaultSerializer,
    InjectFaultSerializer,
    JobDetailSerializer,
    JobEventSerializer,
    JobSerializer,
    RecoverySerializer,
    ReplicaSerializer,
    SampleQuerySerializer,
    SampleSeriesSerializer,
    TelemetryAcceptedSerializer,
    TelemetrySerializer,
)
from apps.training.authentication import JobTokenAuthentication
from apps.training.choices import EventKind, JobPhase
from apps.training.models import (
    JobEvent,
    JobToken,
    RecoveryEvent,
    Replica,
    RunAttempt,
    TrainingJob,
)

JOB_ID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"


class JobFilter(StrictFilterSet):
    cluster = django_filters.CharFilter(field_name="cluster__name")
    phase = django_filters.MultipleChoiceFilter(choices=JobPhase.choices)
    team = django_filters.CharFilter()
    live = django_filters.BooleanFilter(
        field_name="finished_at", lookup_expr="isnull", label="Only those that haven't finished."
    )
    search = django_filters.CharFilter(method="find", label="Part of a name or namespace.")

    class Meta:
        model = TrainingJob
        fields: list[str] = []

    def find(self, queryset: QuerySet[TrainingJob], name: str, value: str) -> QuerySet[TrainingJob]:
        return queryset.filter(name__icontains=value) | queryset.filter(namespace__icontains=value)


@extend_schema(tags=["jobs"])
@extend_schema_view(
    list=extend_schema(operation_id="jobs_list", summary="Training jobs, newest first"),
    retrieve=extend_schema(operation_id="jobs_retrieve", summary="One training job"),
)
class JobViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet):
    queryset = TrainingJob.objects.all()
    filterset_class = JobFilter
    filter_backends = [*viewsets.GenericViewSet.filter_backends, OrderingFilter]
    ordering_fields = ["created_at", "name", "priority", "team", "phase"]
    ordering = ["-created_at"]
    lookup_value_regex = JOB_ID

    def get_queryset(self) -> QuerySet[TrainingJob]:
        return selectors.jobs()

    def get_serializer_class(self) -> type[JobSerializer]:
        return JobDetailSerializer if self.action == "retrieve" else JobSerializer

    @extend_schema(
        operation_id="jobs_samples",
        summary="Loss, throughput and sizes over time",
        parameters=[SampleQuerySerializer],
        responses=SampleSeriesSerializer,
        filters=False,
    )
    @action(detail=True, pagination_class=None)
    def samples(self, request: Request, pk: str) -> Response:
        job = self.get_object()
        query = SampleQuerySerializer(data=request.query_params)
        query.is_valid(raise_exception=True)
        asked = query.validated_data
        bucket_s, series = selectors.sample_series(
            job, asked["since"], asked["until"], asked["points"]
        )
        return Response(
            SampleSeriesSerializer(
                {"job": job.pk, **asked, "bucket_s": bucket_s, "series": series}
            ).data
        )

    @extend_schema(
        operation_id="jobs_inject_fault",
        summary="Signal one replica of a sandbox job",
        request=InjectFaultSerializer,
        responses=InjectedFaultSerializer,
        filters=False,
    )
    @action(detail=True, methods=["post"], url_path="inject-fault")
    def inject_fault(self, request: Request, pk: str) -> Response:
        job = self.get_object()
        given = InjectFaultSerializer(data=request.data)
        given.is_valid(raise_exception=True)
        try:
            pods = actions.inject_fault(
                job,
                given.validated_data["replica_index"],
                given.validated_data["signal"],
                actor=request.user,
                signaller=import_string(settings.CONCERTINA_POD_SIGNALLER),
            )
        except actions.FaultDenied as denied:
            raise PermissionDenied(str(denied), denied.code) from None
        except actions.NoSuchReplica as absent:
            raise Refused(str(absent), "no_such_replica") from None
        except actions.SignalFailed as failed:
            raise Unavailable(str(failed), "signal_failed") from None
        return Response(
            InjectedFaultSerializer({"job": job.pk, **given.validated_data, "pods": pods}).data
        )


class OfJobViewSet(mixins.ListModelMixin, viewsets.GenericViewSet):
    """What belongs to the job in the URL."""

    def get_queryset(self) -> QuerySet:
        queryset = super().get_queryset()
        if getattr(self, "swagger_fake_view", False):
            return queryset.none()
        return queryset.filter(job=get_object_or_404(TrainingJob, pk=self.kwargs["pk"]))


@extend_schema(tags=["jobs"])
@extend_schema_view(list=extend_schema(operation_id="jobs_replicas", summary="Replicas now"))
class ReplicaViewSet(OfJobViewSet):
    queryset = Replica.objects.all()
    serializer_class = ReplicaSerializer
    cursor_ordering = ("index",)


@extend_schema(tags=["jobs"])
@extend_schema_view(
    list=extend_schema(operation_id="jobs_recoveries", summary="Recoveries, newest first")
)
class RecoveryViewSet(OfJobViewSet):
    queryset = RecoveryEvent.objects.select_related("attempt")
    serializer_class = RecoverySerializer
    cursor_ordering = ("-started_at", "-id")


@extend_schema(tags=["jobs"])
@extend_schema_view(
    list=extend_schema(operation_id="jobs_attempts", summary="Run attempts, newest first")
)
class AttemptViewSet(OfJobViewSet):
    queryset = RunAttempt.objects.all()
    serializer_class = AttemptSerializer
    cursor_ordering = ("-started_at", "-id")


class JobEventFilter(StrictFilterSet):
    kind = django_filters.MultipleChoiceFilter(choices=EventKind.choices)

    class Meta:
        model = JobEvent
        fields: list[str] = []


@extend_schema(tags=["jobs"])
@extend_schema_view(
    list=extend_schema(
        operation_id="jobs_events",
        summary="Log matches, stragglers and refusals, newest first",
    )
)
class JobEventViewSet(OfJobViewSet):
    queryset = JobEvent.objects.select_related("attempt")
    serializer_class = JobEventSerializer
    filterset_class = JobEventFilter
    cursor_ordering = ("-at", "-id")


@extend_schema(tags=["telemetry"])
class TelemetryView(APIView):
    """Reports of a job's trainer. Sending a batch again is safe: what was taken in is dropped."""

    authentication_classes = [JobTokenAuthentication]
    permission_classes: list = []
    parser_classes = [RawJSONParser]

    @extend_schema(
        operation_id="telemetry_create",
        summary="Take in a trainer's reports",
        request=TelemetrySerializer,
        responses={202: TelemetryAcceptedSerializer},
        parameters=[
            OpenApiParameter(
                "Authorization", str, OpenApiParameter.HEADER, required=False,
                description="Bearer <job token>",
            )
        ],
    )  # fmt: skip
    def post(self, request: Request) -> Response:
        if not isinstance(request.auth, JobToken):
            self.permission_denied(request, "Send the job's token.", "not_authenticated")
        result = ingest.take_in(request.auth.job, request.data)
        return Response(TelemetryAcceptedSerializer(result).data, status=202)
