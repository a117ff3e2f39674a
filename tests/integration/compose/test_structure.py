"""docker-compose.yml says what it must, without an engine to try it on."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.supervisor.config import ROOT
from tests.integration.compose.composefile import OURS, command_of, environment_of, load

COMPOSE = load()
SERVICES: dict[str, Any] = COMPOSE["services"]


def test_services() -> None:
    assert set(SERVICES) == {*OURS, "migrate", "postgres", "redis"}


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_every_service_that_stays_has_a_health_check_and_a_pinned_image(name: str) -> None:
    service = SERVICES[name]
    image, _, tag = service["image"].partition(":")
    assert "/" not in image, "no registry is named"
    assert tag not in ("", "latest")
    if name != "migrate":
        assert service["healthcheck"]["test"][0] == "CMD"
        assert service["restart"] == "unless-stopped"


@pytest.mark.parametrize("name", OURS)
def test_ours_wait_for_migrations_and_redis_and_run_unprivileged(name: str) -> None:
    service = SERVICES[name]
    assert service["depends_on"] == {
        "migrate": {"condition": "service_completed_successfully"},
        "redis": {"condition": "service_healthy"},
    }
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]


def test_published_ports_are_on_loopback_only() -> None:
    ports = {name: s["ports"] for name, s in SERVICES.items() if "ports" in s}
    assert ports == {"web": ["127.0.0.1:8000:8000"]}


@pytest.mark.parametrize("name", ["CONCERTINA_SECRET_KEY", "POSTGRES_PASSWORD"])
def test_secrets_have_no_default(name: str) -> None:
    given = {"CONCERTINA_SECRET_KEY": "k", "POSTGRES_PASSWORD": "p"}
    del given[name]
    with pytest.raises(ValueError, match=f"set {name} in .env"):
        environment_of("web", SERVICES, given)


@pytest.mark.parametrize("name", OURS)
def test_every_variable_is_one_that_the_settings_read(name: str) -> None:
    texts = [path.read_text() for path in (ROOT / "controlplane" / "settings").glob("*.py")]
    given = {"CONCERTINA_SECRET_KEY": "k", "POSTGRES_PASSWORD": "p"}
    for variable in environment_of(name, SERVICES, given):
        known = variable == "DJANGO_SETTINGS_MODULE" or any(f'"{variable}"' in t for t in texts)
        assert known, f"{variable} is read nowhere in controlplane/settings"


def test_redis_refuses_rather_than_forgets_tasks() -> None:
    command = command_of("redis", SERVICES)
    assert command[command.index("--maxmemory-policy") + 1] == "noeviction"
    assert command[command.index("--appendonly") + 1] == "yes"
