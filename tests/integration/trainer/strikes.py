"""Faults that strike a replica at a named place of its own code.

A strike is `ACTION@PLACE`, with `:N` after N more committed steps; `ACTION*@PLACE` strikes again
and again. A replica gets its first ones from STRIKE (several by commas), later ones from the file
that STRIKE_FILE names (`Job.strike`), which it looks for at every place.

| place | when |
|---|---|
| load, forward, backward | in the script's own functions |
| reduce | the reduction has begun and hasn't ended |
| gate | the reduction has ended, the step isn't allowed yet |
| optimizer, half, applied | before the optimizer's step, half-way through, after it |
| commit | the optimizer's step is done, the counters haven't moved |
| between | the step is committed and the loop has it |
| parked | the authority was told that this replica waits for the next quorum |
| connect, connected | before and after the group's set-up |
| sending, receiving | a part of the state is about to be sent, or is awaited |
| restore | the model has the peer's state, the optimizer doesn't |

Actions: the signals KILL, STOP and TERM; RAISE an exception; OOM, memory that isn't there; HOLD
still while the file STRIKE_FILE.hold is there; SLOW, 50 ms; CORRUPT, one bit of what is being sent.
"""

from __future__ import annotations

import functools
import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from trainer_runtime import ElasticTrainer
from trainer_runtime.group import Group, Pending
from trainer_runtime.protocol import Phase

SLOW_S = 0.05


@dataclass
class Strike:
    action: str
    place: str
    after: int
    always: bool
    due: int | None = None  # the step, known from the first time at the place

    @classmethod
    def parse(cls, text: str) -> Strike:
        action, _, where = text.partition("@")
        place, _, after = where.partition(":")
        return cls(action.rstrip("*"), place, int(after or 0), action.endswith("*"))


class Strikes:
    """Those that wait to strike this process. Idle until the trainer has its first quorum."""

    def __init__(self) -> None:
        self.path = Path(os.environ.get("STRIKE_FILE", "/nonexistent"))
        self.waiting = self._parsed(os.environ.get("STRIKE", ""))
        self.trainer: ElasticTrainer | None = None

    @staticmethod
    def _parsed(text: str) -> list[Strike]:
        return [Strike.parse(each) for each in text.split(",") if each]

    def at(self, place: str, data: torch.Tensor | None = None) -> None:
        if self.trainer is None or self.trainer.quorum is None:
            return
        if self.path.exists():
            self.waiting += self._parsed(self.path.read_text())
            self.path.unlink()
        if place == "reduce" and self.trainer.client._phase != Phase.REDUCE:
            return  # of a join
        step = self.trainer.state.counters.step
        for each in [each for each in self.waiting if each.place == place]:
            each.due = step + each.after if each.due is None else each.due
            if step >= each.due:
                if not each.always:
                    self.waiting.remove(each)
                self._act(each, data)

    def _act(self, strike: Strike, data: torch.Tensor | None) -> None:
        match strike.action:
            case "KILL" | "STOP" | "TERM" as name:
                print(f"struck: {name} at {strike.place}", flush=True)
                signal.raise_signal(getattr(signal, f"SIG{name}"))
            case "RAISE":
                raise RuntimeError(f"the script's own fault in {strike.place}")
            case "OOM":
                torch.empty(1 << 60, dtype=torch.uint8)
            case "HOLD":
                hold = self.path.with_suffix(".hold")
                while hold.exists():
                    time.sleep(0.01)
            case "SLOW":
                time.sleep(SLOW_S)
            case "CORRUPT":
                assert data is not None
                data.view(torch.uint8)[data.numel() // 2] ^= 1
            case _:
                raise ValueError(f"strike: {strike.action} is none of the actions")

    def into(self, trainer: ElasticTrainer) -> None:
        """Come by at the places inside of this trainer."""
        self.trainer = trainer
        self._around(trainer.client, "commit", before="gate")
        self._around(trainer.client, "park", after="parked")
        self._around(Group, "connect", before="connect", after="connected")
        self._around(Group, "start_sum", after="reduce")
        self._around(Group, "start_broadcast", after="reduce")
        self._around(Group, "start_receive", after="receiving")
        send = Group.start_send

        def started(group: Group, data: torch.Tensor, to: int, tag: int) -> Pending:
            data = data.clone()  # the sender's own state stays as it is
            self.at("sending", data)
            return send(group, data, to, tag)

        Group.start_send = started  # type: ignore[method-assign]

    def _around(
        self, owner: Any, name: str, *, before: str | None = None, after: str | None = None
    ) -> None:
        real: Callable[..., Any] = getattr(owner, name)

        @functools.wraps(real)
        def wrapped(*args: Any, **values: Any) -> Any:
            if before is not None:
                self.at(before)
            result = real(*args, **values)
            if after is not None:
                self.at(after)
            return result

        setattr(owner, name, wrapped)


class StruckAdamW(torch.optim.AdamW):
    """Does one parameter group after the other, so that it can be struck half-way."""

    def __init__(
        self, strikes: Strikes, halves: Iterable[Iterable[torch.nn.Parameter]], lr: float
    ) -> None:
        super().__init__([{"params": list(half)} for half in halves], lr=lr)
        self._strikes = strikes

    def step(self, closure: Any = None) -> Any:
        groups = self.param_groups
        self._strikes.at("optimizer")
        try:
            for number, group in enumerate(groups):
                if number:
                    self._strikes.at("half")
                self.param_groups = [group]
                super().step()
        finally:
            self.param_groups = groups
        self._strikes.at("applied")

    def load_state_dict(self, state_dict: Any) -> None:
        self._strikes.at("restore")
        super().load_state_dict(state_dict)


def jumping_clock() -> None:
    """From here on the wall clock of this process is a day off, now ahead and now behind."""
    real, calls = time.time, 0

    def jumped() -> float:
        nonlocal calls
        calls += 1
        return real() + (86_400.0 if calls % 2 else -86_400.0)

    time.time = jumped
