"""What a replica is told: by arguments, else by its environment."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from trainer_runtime.batch import BatchPolicy, BatchRule
from trainer_runtime.protocol import parse_addresses

# Field -> environment variable. An argument of `from_env` wins.
VARIABLES = {
    "authority": "CONCERTINA_AUTHORITY",
    "job": "CONCERTINA_JOB",
    "replica": "CONCERTINA_REPLICA",
    "min_replicas": "CONCERTINA_MIN_REPLICAS",
    "checkpoint_dir": "CONCERTINA_CHECKPOINT_DIR",
    "checkpoint_every": "CONCERTINA_CHECKPOINT_EVERY",
    "seed": "CONCERTINA_SEED",
}


@dataclass(frozen=True, slots=True)
class TrainerOptions:
    """Batches are in samples, times in seconds.

    `global_batch` is kept exactly, whatever the number of replicas: it is cut into micro-batches of
    `micro_batch`, and each replica takes a contiguous share of them. `exact` adds gradients in a
    fixed order, so that weights are the same to the last bit under any history of sizes; it costs
    a broadcast a micro-batch. `group_timeout` bounds a reduction whose peers are silent and that
    nobody aborts.

    `batch_policy` `scale` lets the batch follow the replicas (`global_batch` is that of
    `base_replicas`), and the learning rate the batch, by `lr_rule`; see batch.py. A step in which
    the script's own code fails is tried again, at most `retries` times within `retry_window`.
    """

    authority: str
    global_batch: int
    micro_batch: int = 1
    job: str = "default"
    replica: str = ""
    min_replicas: int = 1
    seed: int = 0
    exact: bool = False
    shuffle: bool = True
    max_grad_norm: float | None = None
    total_steps: int | None = None
    checkpoint_dir: Path | None = None
    checkpoint_every: int = 0  # steps; 0: only when the last replica leaves, and at the end
    warm_up: bool = True
    setup_timeout: float = 10.0
    group_timeout: float = 120.0
    leave_timeout: float = 5.0  # for a leaving replica that can't reach the authority
    report_every: float = 0.5
    batch_policy: str = "preserve"
    base_replicas: int = 1
    lr_rule: str | Callable[[float], float] = "none"
    lr_ramp_steps: int = 0
    retries: int = 3
    retry_window: float = 600.0

    def __post_init__(self) -> None:
        parse_addresses(self.authority, what="authority (CONCERTINA_AUTHORITY)")
        for name in ("global_batch", "micro_batch", "min_replicas"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: must be at least 1 (got {getattr(self, name)})")
        if self.micro_batch > self.global_batch:
            raise ValueError(
                f"micro_batch: {self.micro_batch} is more than global_batch, {self.global_batch}"
            )
        if self.checkpoint_every < 0 or (self.total_steps is not None and self.total_steps < 1):
            raise ValueError("checkpoint_every and total_steps: must not be negative")
        if self.batch_policy not in tuple(BatchPolicy):
            known = " or ".join(BatchPolicy)
            raise ValueError(f"batch_policy: must be {known} (got {self.batch_policy!r})")
        if self.retries < 0 or self.retry_window <= 0:
            raise ValueError("retries: must not be negative; retry_window: must be above 0")
        _ = self.batch  # refuses what is wrong with the others
        if not self.job or not self.replica:
            raise ValueError("job and replica: must not be empty")

    @property
    def batch(self) -> BatchRule:
        return BatchRule(
            self.global_batch, self.micro_batch, BatchPolicy(self.batch_policy),
            self.base_replicas, self.lr_rule, self.lr_ramp_steps,
        )  # fmt: skip

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None, **given: Any) -> TrainerOptions:
        """`given`, and for what isn't given (or None) the environment. Raises ValueError naming
        the variable that is missing or wrong."""
        env = os.environ if env is None else env
        kinds = {each.name: str(each.type) for each in fields(cls)}
        values = {name: value for name, value in given.items() if value is not None}
        for name, variable in VARIABLES.items():
            text = env.get(variable, "")
            if name in values or not text:
                continue
            try:
                values[name] = int(text) if kinds[name] == "int" else text
            except ValueError:
                raise ValueError(f"{variable}: must be a whole number (got {text!r})") from None
        if "authority" not in values:
            raise ValueError(
                "CONCERTINA_AUTHORITY: must name the membership authority as host:port; start one "
                "with `python -m trainer_runtime.authority`"
            )
        if values.get("checkpoint_dir") is not None:
            values["checkpoint_dir"] = Path(values["checkpoint_dir"])
        values.setdefault("replica", replica_name(env))
        return cls(**values)


def replica_name(env: Mapping[str, str]) -> str:
    """The pod's name if it is known, else the completion index, else the process id."""
    if env.get("POD_NAME"):
        return env["POD_NAME"]
    index = env.get("JOB_COMPLETION_INDEX", "")
    return f"replica-{index}" if index else f"process-{os.getpid()}"
