"""Signing in and out, CSRF, throttling, personal tokens."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from apps.accounts import actions
from apps.accounts.models import ApiToken
from apps.core.models import AuditEntry
from tests.rows import make_user

pytestmark = pytest.mark.django_db

PASSWORD = "open-sesame-please"


def error(response: Any) -> tuple[int, str | None, str]:
    [found] = response.json()["errors"]
    return response.status_code, found["field"], found["code"]


def browser() -> tuple[APIClient, dict[str, str]]:
    """A client that checks CSRF as a browser's requests are, and its token's header."""
    client = APIClient(enforce_csrf_checks=True)
    token = client.get("/api/v1/session/").json()["csrf_token"]
    return client, {"HTTP_X_CSRFTOKEN": token}


def test_a_visitor(make_api: Callable[..., APIClient]) -> None:
    body = make_api().get("/api/v1/session/").json()
    assert (body["authenticated"], body["user"], body["demo"]) == (False, None, True)
    assert body["csrf_token"]


def test_in_and_out(make_api: Callable[..., APIClient]) -> None:
    make_user("ann", staff=True, permissions=["training.inject_fault"])
    client, csrf = browser()
    given = {"username": "ann", "password": PASSWORD}
    body = client.post("/api/v1/session/", given, **csrf).json()
    assert body["user"] == {
        "username": "ann",
        "is_staff": True,
        "permissions": ["training.inject_fault"],
    }
    csrf = {"HTTP_X_CSRFTOKEN": body["csrf_token"]}
    assert client.get("/api/v1/jobs/").status_code == 200
    assert client.delete("/api/v1/session/", **csrf).status_code == 204
    assert client.get("/api/v1/jobs/").status_code == 401
    assert client.get("/api/v1/session/").json()["authenticated"] is False


@pytest.mark.parametrize(
    ("given", "want"),
    [
        ({"username": "ann", "password": "wrong"}, (401, None, "wrong_credentials")),
        ({"username": "bob", "password": PASSWORD}, (401, None, "wrong_credentials")),
        ({"username": "idle", "password": PASSWORD}, (401, None, "wrong_credentials")),
        ({"username": "ann"}, (400, "password", "required")),
        ({"username": "ann", "password": ""}, (400, "password", "blank")),
        ({"username": "a\x00", "password": "x"}, (400, "username", "null_characters_not_allowed")),
    ],
)
def test_signing_in_is_refused(
    make_api: Callable[..., APIClient], given: dict[str, str], want: tuple[int, str | None, str]
) -> None:
    make_user("ann")
    idle = make_user("idle")
    idle.is_active = False
    idle.save()
    client, csrf = browser()
    assert error(client.post("/api/v1/session/", given, **csrf)) == want
    assert client.get("/api/v1/session/").json()["authenticated"] is False


def test_a_forged_sign_in_is_refused(make_api: Callable[..., APIClient]) -> None:
    make_user("ann")
    client = APIClient(enforce_csrf_checks=True)
    given = {"username": "ann", "password": PASSWORD}
    assert error(client.post("/api/v1/session/", given)) == (403, None, "csrf_failed")


def test_guessing_is_throttled_for_that_name_only(make_api: Callable[..., APIClient]) -> None:
    client = make_api()
    make_user("ann")
    for _ in range(10):
        client.post("/api/v1/session/", {"username": "ann", "password": "guess"})
    right = client.post("/api/v1/session/", {"username": "ANN", "password": PASSWORD})
    assert error(right) == (429, None, "throttled")
    assert int(right["Retry-After"]) <= 60
    make_user("bob")
    other = client.post("/api/v1/session/", {"username": "bob", "password": PASSWORD})
    assert other.status_code == 200


def test_throttling_goes_on_without_redis(
    make_api: Callable[..., APIClient], settings: Any
) -> None:
    client = make_api()
    settings.CACHES = {
        **settings.CACHES,
        "default": {
            "BACKEND": "django.core.cache.backends.redis.RedisCache",
            "LOCATION": "redis://127.0.0.1:1/0",
        },
    }
    codes = {
        client.post("/api/v1/session/", {"username": "eve", "password": "x"}).status_code
        for _ in range(11)
    }
    assert codes == {401, 429}


def with_token(value: str) -> APIClient:
    client = APIClient(enforce_csrf_checks=True)
    client.credentials(HTTP_AUTHORIZATION=value)
    return client


def test_a_tokens_life(make_api: Callable[..., APIClient]) -> None:
    ann = make_api("ann")
    made = ann.post("/api/v1/tokens/", {"name": "laptop"})
    assert made.status_code == 201
    value = made.json()["token"]
    assert value.startswith("ct_")
    script = with_token(f"Token {value}")
    assert script.get("/api/v1/jobs/").status_code == 200
    [listed] = script.get("/api/v1/tokens/").json()["results"]
    assert (listed["name"], listed["prefix"]) == ("laptop", value[:10])
    assert "token" not in listed
    assert listed["last_used_at"] is not None
    assert script.delete(f"/api/v1/tokens/{listed['id']}/").status_code == 204
    assert error(script.get("/api/v1/jobs/")) == (401, None, "revoked_token")
    assert not ApiToken.objects.filter(digest__contains=value).exists()
    assert list(AuditEntry.objects.order_by("id").values_list("verb", "actor_name")) == [
        ("create_token", "ann"),
        ("revoke_token", "ann"),
    ]


@pytest.mark.parametrize(
    ("header", "code"),
    [
        ("Token ct_unknown", "unknown_token"),
        ("Token", "malformed_header"),
        ("Token a b", "malformed_header"),
        ("Token t\xf6k", "malformed_header"),
        ("Token {expired}", "expired_token"),
        ("Token {revoked}", "revoked_token"),
        ("Token {inactive}", "inactive_user"),
        ("Basic YTpi", "not_authenticated"),
    ],
)
def test_a_token_that_doesnt_count(
    make_api: Callable[..., APIClient], header: str, code: str
) -> None:
    ann, bob = make_user("ann"), make_user("bob")
    values = {}
    for name, user in (("expired", ann), ("revoked", ann), ("inactive", bob)):
        token, values[name] = actions.create_token(user, name, actor=user)
        if name == "expired":
            ApiToken.objects.filter(pk=token.pk).update(
                expires_at=timezone.now() - timedelta(seconds=1)
            )
        if name == "revoked":
            actions.revoke_token(token, actor=user)
    bob.is_active = False
    bob.save()
    response = with_token(header.format(**values)).get("/api/v1/jobs/")
    assert error(response) == (401, None, code)
    assert response["WWW-Authenticate"] == "Token"


def test_nobody_sees_or_revokes_anothers_token(make_api: Callable[..., APIClient]) -> None:
    mine = make_api("ann").post("/api/v1/tokens/", {"name": "laptop"}).json()
    bob = make_api("bob")
    assert bob.get("/api/v1/tokens/").json()["results"] == []
    assert bob.delete(f"/api/v1/tokens/{mine['id']}/").status_code == 404
    assert ApiToken.objects.get().revoked_at is None


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"name": "laptop"}, "name"),
        ({"name": ""}, "name"),
        ({}, "name"),
        ({"name": "x", "expires_at": "2001-01-01T00:00:00Z"}, "expires_at"),
        ({"name": "x", "expires_at": "soon"}, "expires_at"),
    ],
)
def test_a_token_is_refused(
    make_api: Callable[..., APIClient], given: dict[str, str], field: str
) -> None:
    ann = make_api("ann")
    ann.post("/api/v1/tokens/", {"name": "laptop"})
    status, where, _ = error(ann.post("/api/v1/tokens/", given))
    assert (status, where) == (400, field)
    assert ApiToken.objects.count() == 1
