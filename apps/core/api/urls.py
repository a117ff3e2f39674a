from rest_framework.routers import SimpleRouter

from apps.core.api.views import AuditViewSet

router = SimpleRouter()
router.register("audit", AuditViewSet, basename="audit")
urlpatterns = router.urls
