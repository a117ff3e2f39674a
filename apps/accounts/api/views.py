"""Sign in, who am I, sign out; personal tokens."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth import authenticate, login, logout
from django.db.models import QuerySet
from django.middleware.csrf import get_token
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_protect
from drf_spectacular.utils import OpenApiResponse, extend_schema, extend_schema_view
from rest_framework import mixins, status, viewsets
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.permissions import AllowAny, IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.accounts import actions
from apps.accounts.api.serializers import (
    ApiTokenSerializer,
    NewApiTokenSerializer,
    SessionSerializer,
    SignInSerializer,
)
from apps.accounts.models import ApiToken
from apps.accounts.throttling import SignInThrottle


# Also for a visitor who isn't signed in: a forged sign-in would put him into another's account.
@method_decorator(csrf_protect, name="dispatch")
@method_decorator(never_cache, name="dispatch")
@extend_schema(tags=["session"])
class SessionView(APIView):
    permission_classes = [AllowAny]
    throttle_classes = [SignInThrottle]

    @extend_schema(
        operation_id="session_retrieve",
        summary="Who am I; also sets the CSRF cookie",
        responses=SessionSerializer,
    )
    def get(self, request: Request) -> Response:
        return Response(self.state(request))

    @extend_schema(
        operation_id="session_create",
        summary="Sign in",
        request=SignInSerializer,
        responses=SessionSerializer,
    )
    def post(self, request: Request) -> Response:
        given = SignInSerializer(data=request.data)
        given.is_valid(raise_exception=True)
        user = authenticate(request._request, **given.validated_data)
        if user is None:
            raise AuthenticationFailed("Wrong user name or password.", "wrong_credentials")
        login(request._request, user)
        request.user = user
        return Response(self.state(request))

    @extend_schema(
        operation_id="session_destroy",
        summary="Sign out",
        responses={204: OpenApiResponse(description="Signed out")},
    )
    def delete(self, request: Request) -> Response:
        logout(request._request)
        return Response(status=status.HTTP_204_NO_CONTENT)

    def state(self, request: Request) -> dict:
        user = request.user if request.user.is_authenticated else None
        return SessionSerializer(
            {
                "authenticated": user is not None,
                "user": user,
                "csrf_token": get_token(request._request),
                "demo": settings.CONCERTINA_DEMO,
                "server_time": timezone.now(),
            }
        ).data


@extend_schema(tags=["session"])
@extend_schema_view(
    list=extend_schema(operation_id="tokens_list", summary="My live tokens"),
    create=extend_schema(
        operation_id="tokens_create",
        summary="Make a token",
        request=ApiTokenSerializer,
        responses={201: NewApiTokenSerializer},
    ),
    destroy=extend_schema(operation_id="tokens_destroy", summary="Revoke a token"),
)
class TokenViewSet(
    mixins.ListModelMixin,
    mixins.DestroyModelMixin,
    viewsets.GenericViewSet,
):
    permission_classes = [IsAuthenticated]
    serializer_class = ApiTokenSerializer
    queryset = ApiToken.objects.none()
    lookup_value_converter = "int"
    cursor_ordering = ("-created_at", "-id")

    def get_queryset(self) -> QuerySet[ApiToken]:
        if getattr(self, "swagger_fake_view", False):
            return ApiToken.objects.none()
        return ApiToken.objects.filter(user=self.request.user, revoked_at=None)

    def create(self, request: Request) -> Response:
        given = self.get_serializer(data=request.data)
        given.is_valid(raise_exception=True)
        token, value = actions.create_token(
            request.user, actor=request.user, **given.validated_data
        )
        token.token = value
        return Response(NewApiTokenSerializer(token).data, status=status.HTTP_201_CREATED)

    def perform_destroy(self, token: ApiToken) -> None:
        actions.revoke_token(token, actor=self.request.user)
