"""What the live stream tells of decisions: the same objects that the API shows, kept short."""

from __future__ import annotations

from typing import Any

from apps.decisions.models import Command, Decision

Event = tuple[str, dict[str, Any]]


#: rejected candidates that an event carries; the decision itself has them all
MOST_REJECTED = 5


def command_event(command: Command) -> Event:
    from apps.decisions.api.serializers import CommandSerializer

    return "command", dict(CommandSerializer(command).data)


def decision_event(decision: Decision) -> Event:
    from apps.decisions.api.serializers import DecisionSerializer

    data = dict(DecisionSerializer(decision).data)
    return "decision", {**data, "rejected": data["rejected"][:MOST_REJECTED]}
