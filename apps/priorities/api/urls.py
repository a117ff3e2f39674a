from rest_framework.routers import SimpleRouter

from apps.priorities.api.views import CohortViewSet, PriorityClassViewSet, QueueViewSet

router = SimpleRouter()
router.register("priority-classes", PriorityClassViewSet, basename="priority-classes")
router.register("queues", QueueViewSet, basename="queues")
router.register("cohorts", CohortViewSet, basename="cohorts")
urlpatterns = router.urls
