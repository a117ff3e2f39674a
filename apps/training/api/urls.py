from django.urls import path, re_path
from rest_framework.routers import SimpleRouter

from apps.training.api import views

router = SimpleRouter()
router.register("jobs", views.JobViewSet, basename="jobs")


def of_job(name: str, view: type[views.OfJobViewSet]):
    return re_path(
        rf"^jobs/(?P<pk>{views.JOB_ID})/{name}/$",
        view.as_view({"get": "list"}),
        name=f"jobs-{name}",
    )


urlpatterns = [
    *router.urls,
    of_job("replicas", views.ReplicaViewSet),
    of_job("recoveries", views.RecoveryViewSet),
    of_job("attempts", views.AttemptViewSet),
    of_job("events", views.JobEventViewSet),
    path("telemetry/", views.TelemetryView.as_view(), name="telemetry"),
]
