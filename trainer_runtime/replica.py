"""What one replica holds: everything that makes it able to go on from a committed step."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from trainer_runtime.batch import Ramp
from trainer_runtime.sampler import ElasticSampler
from trainer_runtime.state import (
    Packed,
    StateError,
    pack,
    random_state,
    set_random_state,
    unpack,
)


class Stateful(Protocol):
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any], /) -> Any: ...


class Scheduler(Stateful, Protocol):
    """Steps once a committed step."""

    def step(self) -> Any: ...


@dataclass(slots=True)
class Counters:
    """Replicated with the state. `epoch` is the one in which the last step was committed."""

    attempt: str = ""
    step: int = 0
    samples: int = 0
    epoch: int = 0
    loss: float = float("nan")


class ReplicaState:
    """Model with its buffers, optimizer, scheduler, gradient scaler, sampler's cursor, random
    state, counters, and whatever else the script gives as `extra` (each with state_dict and
    load_state_dict)."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        sampler: ElasticSampler,
        scheduler: Scheduler | None = None,
        extra: dict[str, Stateful] | None = None,
        scaler: Any = None,
    ) -> None:
        self.model, self.optimizer, self.sampler = model, optimizer, sampler
        self.scheduler, self.extra, self.scaler = scheduler, extra or {}, scaler
        self.counters, self.ramp = Counters(), Ramp()

    def begin_attempt(self) -> None:
        self.counters.attempt = uuid.uuid4().hex[:16]

    def tree(self) -> dict[str, Any]:
        """The state as it is, its tensors not copied. What may differ among replicas of the same
        step (random state) is plain values: a peer's tensors are as good as the source's."""
        counters = self.counters
        return {
            "model": dict(self.model.state_dict()),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict() if self.scheduler else None,
            "scaler": self.scaler.state_dict() if self.scaler else None,
            "ramp": [self.ramp.start, self.ramp.target, self.ramp.since],
            "sampler": self.sampler.state_dict(),
            "extra": {name: each.state_dict() for name, each in self.extra.items()},
            "random": random_state(),
            "counters": [
                counters.attempt, counters.step, counters.samples, counters.epoch, counters.loss,
            ],
        }  # fmt: skip

    def pack(self) -> Packed:
        return pack(self.tree())

    def load(self, packed: Packed) -> None:
        """Take over a state. Raises StateError before anything is changed if it is damaged or
        isn't of this model, and ValueError if the sampler's order differs."""
        tree = unpack(packed)
        own = self.model.state_dict()
        theirs = tree["model"]
        if own.keys() != theirs.keys():
            odd = sorted(own.keys() ^ theirs.keys())
            raise StateError(f"model: state and model differ in {', '.join(odd[:5])}")
        for name, tensor in own.items():
            if tensor.shape != theirs[name].shape:
                raise StateError(
                    f"model: {name} has shape {tuple(tensor.shape)} here and "
                    f"{tuple(theirs[name].shape)} in the state"
                )
        if (self.scheduler is None) != (tree["scheduler"] is None):
            raise StateError("scheduler: only one of state and script has one")
        if (self.scaler is None) != (tree.get("scaler") is None):
            raise StateError("scaler: only one of state and script has one")
        if self.extra.keys() != tree["extra"].keys():
            raise StateError(
                f"extra: the state has {sorted(tree['extra'])}, the script {sorted(self.extra)}"
            )
        self.sampler.load_state_dict(tree["sampler"])
        self.model.load_state_dict(theirs)
        # load_state_dict keeps the tensors it is given: they must not hold on to the buffer.
        self.optimizer.load_state_dict(_own_copies(tree["optimizer"]))
        if self.scheduler is not None:
            self.scheduler.load_state_dict(tree["scheduler"])
        if self.scaler is not None:
            self.scaler.load_state_dict(tree["scaler"])
        self.ramp = Ramp(*tree.get("ramp", ()))
        for name, each in self.extra.items():
            each.load_state_dict(_own_copies(tree["extra"][name]))
        set_random_state(tree["random"])
        self.counters = Counters(*tree["counters"])

    def warm_up(self, forward_backward: Callable[[], None]) -> float:
        """Run one step for its side effects (kernels, memory, the optimizer's lazy imports) and
        undo it: weights, buffers, optimizer and random state are as before. Returns seconds."""
        started = time.monotonic()
        weights = {name: each.detach().clone() for name, each in self.model.state_dict().items()}
        before = random_state()
        groups = [
            {key: value for key, value in group.items() if key != "params"}
            for group in self.optimizer.param_groups
        ]
        forward_backward()
        # Not through a scheduler's wrapper: it counts calls of `step`.
        type(self.optimizer).step(self.optimizer)
        self.optimizer.state.clear()
        for group, values in zip(self.optimizer.param_groups, groups, strict=True):
            group.update(values)
        self.model.load_state_dict(weights)
        set_random_state(before)
        return time.monotonic() - started


def _own_copies(node: Any) -> Any:
    if isinstance(node, torch.Tensor):
        return node.clone()
    if isinstance(node, dict):
        return {key: _own_copies(value) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return type(node)(_own_copies(value) for value in node)
    return node
