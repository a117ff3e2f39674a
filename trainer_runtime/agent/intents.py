"""What the control plane wants of this agent's replicas: drains and new sizes, acknowledged."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from trainer_runtime.agent.controlplane import Intent
from trainer_runtime.agent.processes import Replica

_LOOK_S = 0.1


class Fleet(Protocol):
    """The agent, as far as intents need it."""

    def stable_name(self, replica: Replica) -> str: ...
    def running(self) -> list[Replica]: ...
    def took_part(self, replica: Replica) -> bool: ...
    def leave(self, replica: Replica, seconds: float | None) -> None: ...
    def grow(self, to: int) -> None: ...


@dataclass
class _Drain:
    intent: Intent
    replicas: list[Replica]
    until: float  # when a script that hasn't connected counts as not elastic
    accepted: bool = False


class Intents:
    """`ack(sequence, state, reason, detail)`. Used in the event loop's thread only."""

    def __init__(
        self, fleet: Fleet, sizes: tuple[int, int], elastic_timeout: float,
        ack: Callable[[int, str, str, str], None], log: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._fleet, self._sizes, self._timeout = fleet, sizes, elastic_timeout
        self._ack, self._log = ack, log
        self._drains: list[_Drain] = []

    def take(self, intent: Intent) -> None:
        self._log(f"intent {intent.sequence}: {intent.kind} {_what(intent)} ({intent.reason})")
        if intent.kind == "resize":
            self._resize(intent)
            return
        running = self._fleet.running()
        if intent.replicas is not None:
            known = {name: r for r in running for name in (r.name, self._fleet.stable_name(r))}
            missing = sorted(set(intent.replicas) - set(known))
            if missing:
                self._refuse(intent, "unknown_replica", f"not here: {', '.join(missing)}")
                return
            running = [r for r in running if r in [known[name] for name in intent.replicas]]
        self._drain(intent, running)

    def gone(self, replica: Replica) -> None:
        """A replica has ended, for whatever reason."""
        for drain in list(self._drains):
            if replica in drain.replicas and drain.accepted:
                drain.replicas.remove(replica)
                if not drain.replicas:
                    self._drains.remove(drain)
                    detail = "" if not replica.code else f"{replica.name}: exit {replica.code}"
                    reason = "killed" if replica.killed else ""
                    self._ack(drain.intent.sequence, "done", reason, detail)

    def _resize(self, intent: Intent) -> None:
        low, high = self._sizes
        running = self._fleet.running()
        to = intent.to or 0
        if to > high or 0 < to < low:
            self._refuse(intent, "out_of_range", f"this agent was started for {low} to {high}")
        elif to >= len(running):
            self._ack(intent.sequence, "accepted", "", "")
            self._fleet.grow(to)
            self._ack(intent.sequence, "done", "", "")
        else:
            self._drain(intent, running[to:])

    def _drain(self, intent: Intent, replicas: list[Replica]) -> None:
        if not replicas:
            self._ack(intent.sequence, "accepted", "", "")
            self._ack(intent.sequence, "done", "", "nothing runs here")
            return
        until = time.monotonic() + min(self._timeout, intent.seconds or self._timeout)
        self._drains.append(_Drain(intent, list(replicas), until))
        self._look()

    def _look(self) -> None:
        """Nobody is asked to leave before all have been seen to take part."""
        waiting = False
        for drain in [each for each in self._drains if not each.accepted]:
            drain.replicas = [r for r in drain.replicas if not r.over]
            strangers = [r for r in drain.replicas if not self._fleet.took_part(r)]
            if not strangers:
                self._accept(drain)
            elif time.monotonic() >= drain.until:
                self._drains.remove(drain)
                names = ", ".join(each.name for each in strangers)
                self._refuse(
                    drain.intent, "not_elastic",
                    f"never connected to the authority: {names}; the script doesn't use "
                    "trainer_runtime. Nothing was stopped",
                )  # fmt: skip
            else:
                waiting = True
        if waiting:
            asyncio.get_running_loop().call_later(_LOOK_S, self._look)

    def _accept(self, drain: _Drain) -> None:
        drain.accepted = True
        self._ack(drain.intent.sequence, "accepted", "", "")
        if not drain.replicas:
            self._drains.remove(drain)
            self._ack(drain.intent.sequence, "done", "", "they had ended")
        for replica in drain.replicas:
            self._fleet.leave(replica, drain.intent.seconds)

    def _refuse(self, intent: Intent, reason: str, detail: str) -> None:
        self._log(f"intent {intent.sequence} refused: {reason}: {detail}")
        self._ack(intent.sequence, "refused", reason, detail)


def _what(intent: Intent) -> str:
    if intent.kind == "resize":
        return f"to {intent.to}"
    return "all" if intent.replicas is None else ", ".join(intent.replicas)


def how_it_ended(code: int) -> str:
    """`exit code 1`, or the signal's name."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
