"""Reads docker-compose.yml as far as it uses the format: variables, commands, health checks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from controlplane.supervisor.config import ROOT

OURS = ("web", "worker", "beat", "watcher")
# ${NAME}, ${NAME:-default}, ${NAME:?message}
VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?::(?P<kind>[-?])(?P<rest>[^}]*))?\}")


def load() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return loaded


def interpolate(text: str, given: Mapping[str, str]) -> str:
    """As compose does. Raises ValueError with the file's message for a required one not given."""

    def value(match: re.Match[str]) -> str:
        found = given.get(match["name"], "")
        if found:
            return found
        if match["kind"] == "?":
            raise ValueError(match["rest"])
        return match["rest"] or ""

    return VARIABLE.sub(value, text)


def environment_of(
    name: str, services: Mapping[str, Any], given: Mapping[str, str]
) -> dict[str, str]:
    return {k: interpolate(str(v), given) for k, v in services[name]["environment"].items()}


def command_of(name: str, services: Mapping[str, Any]) -> list[str]:
    return [str(word) for word in services[name]["command"]]


def health_of(name: str, services: Mapping[str, Any]) -> list[str]:
    """The command of the health check, without compose's "CMD"."""
    return [str(word) for word in services[name]["healthcheck"]["test"][1:]]
