from rest_framework.routers import SimpleRouter

from apps.elasticity.api.views import ElasticityPolicyViewSet

router = SimpleRouter()
router.register("elasticity-policies", ElasticityPolicyViewSet, basename="elasticity-policies")
urlpatterns = router.urls
