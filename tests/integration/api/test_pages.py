"""Probes, metrics, the page itself, headers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import redis
from django.test import Client
from django.utils import timezone

from apps.core import health
from tests.integration.api.test_reads import make_node
from tests.rows import make_cluster, make_command, make_job, make_plan

pytestmark = pytest.mark.django_db


def test_healthz_needs_nothing() -> None:
    response = Client().get("/healthz")
    assert (response.status_code, response.json()) == (200, {"status": "ok"})


def test_readyz(live_redis: redis.Redis) -> None:
    response = Client().get("/readyz")
    assert response.json() == {"status": "ok", "checks": {"database": "ok", "redis": "ok"}}


def test_readyz_without_redis_is_degraded_and_says_so() -> None:
    response = Client().get("/readyz")
    body = response.json()
    assert (response.status_code, body["status"], body["checks"]["database"]) == (
        200,
        "degraded",
        "ok",
    )
    assert "Redis can't be reached" in body["checks"]["redis"]


def test_readyz_with_migrations_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_migrated", set())
    monkeypatch.setattr(health.MigrationExecutor, "migration_plan", lambda *_: [("x", False)])
    response = Client().get("/readyz")
    assert response.status_code == 503
    assert "1 migrations are missing" in response.json()["checks"]["database"]


def test_metrics() -> None:
    cluster = make_cluster(accounted_at=timezone.now(), last_observed_at=timezone.now())
    make_node(cluster, used=3)
    job = make_job(cluster)
    make_command(job, state="done")
    make_plan(cluster, 9, duration_ms=25.0)
    text = Client().get("/metrics").content.decode()
    for line in (
        'concertina_accelerators{cluster="east",resource="nvidia.com/gpu",state="used"} 3.0',
        'concertina_accelerators{cluster="east",resource="nvidia.com/gpu",state="free"} 5.0',
        'concertina_capacity_drift{cluster="east",resource="nvidia.com/gpu"} 0.0',
        'concertina_jobs{cluster="east",phase="running"} 1.0',
        'concertina_jobs{cluster="east",phase="pending"} 0.0',
        'concertina_commands{state="done"} 1.0',
        'concertina_plan_duration_seconds{cluster="east"} 0.025',
    ):
        assert line in text, line
    assert "concertina_event_lag_seconds_bucket" in text
    assert "django_http_requests_total" in text


def test_metrics_of_a_cluster_that_isnt_known_are_absent() -> None:
    make_node(make_cluster(), used=3)
    text = Client().get("/metrics").content.decode()
    assert "concertina_accelerators{" not in text
    assert "concertina_cluster_observed_age_seconds{" not in text


@pytest.mark.parametrize(("header", "want"), [({}, 401), ({"Authorization": "Bearer m"}, 200)])
def test_metrics_may_have_a_token(settings: Any, header: dict[str, str], want: int) -> None:
    settings.CONCERTINA_METRICS_TOKEN = "m"
    assert Client(headers=header).get("/metrics").status_code == want


@pytest.fixture
def built(settings: Any, tmp_path: Path) -> None:
    """A built front end: its manifest names the entry's hashed files."""
    from django_vite.core.asset_loader import DjangoViteAssetLoader

    manifest = tmp_path / "manifest.json"
    entry = {"file": "assets/main-Ab3dEf9h.js", "isEntry": True, "css": ["assets/main-x.css"]}
    manifest.write_text(json.dumps({"src/main.tsx": entry}))
    settings.DJANGO_VITE = {"default": {"dev_mode": False, "manifest_path": manifest}}
    DjangoViteAssetLoader._instance = None
    yield
    DjangoViteAssetLoader._instance = None


@pytest.mark.parametrize("path", ["/", "/jobs/7", "/sign-in", "/anything/deep?x=1"])
def test_the_page_is_at_every_address(built: None, path: str) -> None:
    response = Client().get(path)
    html = response.content.decode()
    assert response.status_code == 200
    assert '<div id="root">' in html
    assert "assets/main-Ab3dEf9h.js" in html
    assert "assets/main-x.css" in html
    assert response["Cache-Control"] == "no-cache"
    assert "concertina_csrf" in response.cookies


def test_the_page_before_it_is_built(settings: Any, tmp_path: Path) -> None:
    from django_vite.core.asset_loader import DjangoViteAssetLoader

    absent = tmp_path / "manifest.json"
    settings.DJANGO_VITE = {"default": {"dev_mode": False, "manifest_path": absent}}
    DjangoViteAssetLoader._instance = None
    response = Client().get("/")
    DjangoViteAssetLoader._instance = None
    assert response.status_code == 503
    assert "make build" in response.content.decode()


@pytest.mark.parametrize("path", ["/static/assets/gone-12345678.js", "/api/nothing", "/api/v1/x/"])
def test_a_missing_file_or_endpoint_is_not_the_page(built: None, path: str) -> None:
    assert Client().get(path).status_code == 404


@pytest.mark.parametrize(
    ("path", "scripts"),
    [("/healthz", "script-src 'self';"), ("/admin/login/", "'unsafe-eval'")],
)
def test_security_headers(path: str, scripts: str) -> None:
    response = Client().get(path)
    policy = response["Content-Security-Policy"]
    assert scripts in policy
    assert "frame-ancestors 'none'" in policy
    assert response["X-Frame-Options"] == "DENY"
    assert response["X-Content-Type-Options"] == "nosniff"
    assert response["Referrer-Policy"] == "same-origin"


def test_the_api_is_documented_offline() -> None:
    assert "openapi: 3.1.1" in Client().get("/api/v1/schema/").content.decode()
    html = Client().get("/api/v1/docs/").content.decode()
    assert "/static/drf_spectacular_sidecar/swagger-ui-dist/" in html
    assert "<script>" not in html  # the policy forbids it
    assert "https://" not in html
