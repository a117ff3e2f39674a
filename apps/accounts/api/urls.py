from django.urls import path
from rest_framework.routers import SimpleRouter

from apps.accounts.api.views import SessionView, TokenViewSet

router = SimpleRouter(use_regex_path=False)
router.register("tokens", TokenViewSet, basename="tokens")
urlpatterns = [path("session/", SessionView.as_view(), name="session"), *router.urls]
