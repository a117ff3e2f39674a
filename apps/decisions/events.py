"""What the live stream tells of decisions: the same objects that the API shows."""

from __future__ import annotations

from typing import Any

from apps.decisions.models import Command, Decision

Event = tuple[str, dict[str, Any]]


def command_event(command: Command) -> Event:
    from apps.decisions.api.serializers import CommandSerializer

    return "command", dict(CommandSerializer(command).data)


def decision_event(decision: Decision) -> Event:
    from apps.decisions.api.serializers import DecisionSerializer

    return "decision", dict(DecisionSerializer(decision).data)
