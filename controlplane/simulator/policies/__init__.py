"""The policies that can be compared, by name; one line each in `POLICIES`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial

from controlplane.simulator.fields import BadInput
from controlplane.simulator.policies.base import SchedulingPolicy
from controlplane.simulator.policies.fixed import FifoBackfill, LeastAttained, PreemptWhole
from controlplane.simulator.policies.ours import ABLATIONS, CHOICES, Options, Ours

POLICIES: dict[str, Callable[[], SchedulingPolicy]] = {
    "ours": Ours,
    "fifo_backfill": FifoBackfill,
    "preempt_whole": PreemptWhole,
    "las": LeastAttained,
    **{name: partial(Ours, name, options) for name, options in ABLATIONS.items()},
}


def policy_of(text: str) -> SchedulingPolicy:
    """The policy that a text names: `las`, `ours`, `ours:objective=throughput,remaining=unknown`.

    Raises BadInput for a name, an option or a value that isn't there.
    """
    name, _, given = text.partition(":")
    if name not in POLICIES:
        raise BadInput("policy", name, f"is not known; choose one of {', '.join(POLICIES)}")
    if not given:
        return POLICIES[name]()
    if not name.startswith("ours"):
        raise BadInput("policy", text, f"{name} takes no options; leave out what follows the colon")
    return Ours(text, _options(ABLATIONS.get(name, Options()), given))


def _options(options: Options, given: str) -> Options:
    names = [field.name for field in fields(Options)]
    for part in given.split(","):
        key, _, value = part.partition("=")
        if key not in names:
            raise BadInput("policy option", key, f"is not known; choose from {', '.join(names)}")
        if value not in CHOICES[key]:
            allowed = ", ".join(choice for choice in CHOICES[key] if choice)
            raise BadInput(f"policy option {key}", value, f"must be one of {allowed}")
        options = replace(options, **{key: value})
    return options
