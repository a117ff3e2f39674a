from rest_framework.routers import SimpleRouter

from apps.priorities.api.views import PriorityClassViewSet

router = SimpleRouter()
router.register("priority-classes", PriorityClassViewSet, basename="priority-classes")
urlpatterns = router.urls
