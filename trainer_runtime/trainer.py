"""The step API: elastic data-parallel training of a plain module.

    with ElasticTrainer(model, optimizer, load=load, loss=loss, samples=n, options=o) as trainer:
        for done in trainer:
            print(done.step, done.loss)

`load(indices)` gives a batch, `loss(batch)` the SUM of its samples' losses (or that and the sum of
their weights). The gradient is that of the mean over the global batch, whatever the number of
replicas. Between two steps the group may have grown, shrunk or lost a member; the loop doesn't
notice. A step in which `load`, the model or the optimizer raises is tried again within a budget.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from trainer_runtime import checkpoint
from trainer_runtime.agent.parking import wait_if_parked
from trainer_runtime.budget import Budget
from trainer_runtime.client import AuthorityError, Client, Notice
from trainer_runtime.drain import Drain
from trainer_runtime.events import Handlers, Resize
from trainer_runtime.group import Group, GroupError
from trainer_runtime.keeper import Keeper
from trainer_runtime.options import TrainerOptions
from trainer_runtime.protocol import Quorum, parse_address
from trainer_runtime.rendezvous import enter
from trainer_runtime.replica import ReplicaState, Scheduler, Stateful
from trainer_runtime.reporting import Reporter
from trainer_runtime.sampler import ElasticSampler
from trainer_runtime.stages import StageClock
from trainer_runtime.state import StateError
from trainer_runtime.step import Stepper, StepResult, Superseded
from trainer_runtime.telemetry import Telemetry, TelemetryOptions
from trainer_runtime.wire import RecoveryStage

_RETRY_S = (0.05, 2.0)


class ElasticTrainer:
    """One replica. Not thread-safe: used by the thread that made it.

    `tokens_per_sample` is for the reports only; `extra` are further parts of the replicated state.
    `handlers` are told of changes (events.py). `health_check` runs before a step is tried again
    after the script's own failure: what it raises ends this replica.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        load: Callable[[Sequence[int]], Any],
        loss: Callable[[Any], Any],
        samples: int,
        options: TrainerOptions,
        scheduler: Scheduler | None = None,
        scaler: torch.amp.GradScaler | None = None,
        extra: dict[str, Stateful] | None = None,
        handlers: Handlers | None = None,
        health_check: Callable[[], None] | None = None,
        tokens_per_sample: int | None = None,
        telemetry: Telemetry | None = None,
        drain: Drain | None = None,
    ) -> None:
        self.options = options
        sampler = ElasticSampler(
            samples, options.global_batch, seed=options.seed, shuffle=options.shuffle
        )
        self.state = ReplicaState(model, optimizer, sampler, scheduler, extra, scaler)
        self.handlers = handlers or Handlers()
        self._health_check = health_check
        self._budget = Budget(options.retries, options.retry_window)
        self._tokens = tokens_per_sample
        self.telemetry = telemetry or Telemetry(TelemetryOptions.from_env(), self.log)
        self.reporter = Reporter(
            self.telemetry, total_steps=options.total_steps, every_s=options.report_every
        )
        self.member = f"{options.replica}#{uuid.uuid4().hex[:8]}"
        self.client = Client(
            parse_address(options.authority), job=options.job, member=self.member,
            name=options.replica, min_replicas=options.min_replicas,
            on_superseded=self._abort,
        )  # fmt: skip
        self.stepper = Stepper(self.state, self.client, options, load, loss)
        self.keeper = Keeper(
            options.checkpoint_dir, self.state, self.client, self.reporter, self.log
        )
        self.drain = drain
        self.quorum: Quorum | None = None
        self._group: Group | None = None
        self._old: Group | None = None
        self._clock: StageClock | None = None  # runs from a failure to the next commit
        self._parked_at: float | None = None  # of a planned change
        self._adopted: StepResult | None = None
        self._started_at = time.monotonic()
        self._before = 0
        self._retry = _RETRY_S[0]
        self._ended = False
        self._freeing: list[threading.Thread] = []

    # ---- the script's side -----------------------------------------------------------------

    def __enter__(self) -> ElasticTrainer:
        """Warm up, then offer this replica to the authority; it joins at a step boundary."""
        if self.options.warm_up:
            seconds = self.state.warm_up(self.stepper.rehearse)
            self.log(f"warmed up in {seconds:.2f} s")
        if self.options.checkpoint_dir is not None:
            self.client.claim.checkpoint_step = next(
                iter(checkpoint.steps(self.options.checkpoint_dir)), -1
            )
        self.drain = self.drain or Drain()
        self.drain.into(self.client.request_leave)
        wait_if_parked()  # a warm standby, until its agent needs it
        self._started_at = time.monotonic()
        self.client.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        if kind is not None and not self._ended:
            self.client.bye("failed", self.state.counters.step)
        self.close()

    def __iter__(self) -> Iterator[StepResult]:
        while (result := self.step()) is not None:
            yield result

    def step(self) -> StepResult | None:
        """Train until one more step is committed; None when this replica is done: the last step
        is reached, or it was asked to leave. Raises AuthorityError if the authority refuses it,
        StateError if there are only damaged checkpoints; what `load`, `loss` and the optimizer
        raise, once their budget of retries is spent."""
        while not self._ended:
            if self._group is None and not self._join():
                break
            if self._adopted is not None:
                result, self._adopted = self._adopted, None
                return result
            if self._at_end():
                self._finish()
                break
            try:
                assert self._group is not None
                result, stopping = self.stepper.run(self._group, self._clock)
            except (Superseded, GroupError) as error:
                self._failed(error)
                continue
            except Exception as error:
                self._own_failure(error)
                continue
            self._after_commit(result)
            if stopping and not self._at_end():
                self._park(failed=False)
            return result
        return None

    @contextlib.contextmanager
    def long_call(self) -> Iterator[None]:
        """Announce a call that takes long and reports no progress, such as a compilation."""
        with self.client.paused():
            yield

    def close(self) -> None:
        """Leave nothing behind: connections, groups, threads, signal handlers."""
        self._ended = True
        self.keeper.wait()
        self._drop_group()
        self._free_old()
        self.client.close()
        self.telemetry.close()
        # A set-up that was left behind ends by its own time-out.
        until = time.monotonic() + self.options.setup_timeout + 1.0
        for thread in self._freeing:
            thread.join(max(0.0, until - time.monotonic()))
        if self.drain is not None:
            self.drain.restore()

    def log(self, text: str) -> None:
        print(f"[{self.options.replica}] {text}", file=sys.stderr, flush=True)

    def _after_commit(self, result: StepResult) -> None:
        self._retry = _RETRY_S[0]
        self._before = result.world_size
        if self._clock is not None:
            self._clock.end(RecoveryStage.FIRST_STEP)
            clock, self._clock = self._clock, None
            self.reporter.recovered(clock, step=result.step)
            self._tell("on_recovery", clock.cause, clock.downtime, result)
            self.log(
                f"recovered ({clock.cause}) at step {result.step} in {clock.downtime:.3f} s: "
                + ", ".join(f"{s.stage.value} {s.duration_s * 1000:.0f} ms" for s in clock.stages())
            )
        samples, rate = result.samples, result.learning_rate
        self.reporter.committed(
            step=result.step, loss=result.loss, samples=samples, size=result.world_size,
            tokens=self._tokens * samples if self._tokens else None, rate=float(rate),
        )  # fmt: skip
        every = self.options.checkpoint_every
        due = bool(every and result.step % every == 0)
        if self.handlers.should_checkpoint is not None:
            due = bool(self._tell("should_checkpoint", result)) or due
        if due and result.rank == 0:
            self.keeper.behind()

    # ---- between steps ---------------------------------------------------------------------

    def _park(self, *, failed: bool) -> None:
        """Stop, and wait for the next quorum. The old group stays until everybody has stopped."""
        self._drop_group()
        if not failed and self._clock is None:
            self._parked_at = time.monotonic()
        self.client.park(failed=failed)

    def _failed(self, error: Exception) -> None:
        """A step came to nothing: measure from the failure on, and park."""
        now = time.monotonic()
        notice = self.client.superseded
        if self._clock is None:
            since = min(now, notice.since) if notice else now
            self._clock = StageClock(since)
            self._clock.end(RecoveryStage.DETECT, notice.noticed_at if notice else now)
        else:
            self._clock.end(RecoveryStage.FIRST_STEP)
        if self._group is not None:
            self._group.abort()
        self._clock.end(RecoveryStage.ABORT)
        reason = notice.cause if notice else str(error).partition(". ")[0]
        self.log(f"step {self.state.counters.step + 1} given up: {reason}")
        self._park(failed=True)

    def _own_failure(self, error: Exception) -> None:
        """The script's own code raised: within the budget, the step is tried again with all."""
        if self.stepper.torn:
            # Half of an optimizer's step: only a peer or a checkpoint has a state to go on from.
            with self.client.locked():
                self.client.claim.live = False
        if not self._budget.spend(time.monotonic()):
            self.log(
                f"giving up: more than {self.options.retries} failures within "
                f"{self.options.retry_window:g} s; the last: {error!r}"
            )
            raise error
        self.log("".join(traceback.format_exception(error)).rstrip())
        self._failed(error)
        # A traceback holds the step's tensors: let go of them before anything is allocated.
        error.__traceback__ = None
        if isinstance(error, MemoryError | torch.OutOfMemoryError):
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
        if self._health_check is not None:
            self._health_check()

    def _tell(self, name: str, *values: Any) -> Any:
        """Call a handler, if there is one. What it raises is logged and ends nothing."""
        handler = getattr(self.handlers, name)
        if handler is None:
            return None
        try:
            return handler(*values)
        except Exception:
            self.log(f"handler {name} failed:\n{traceback.format_exc().rstrip()}")
            return None

    def _join(self) -> bool:
        """Wait for a quorum and enter it; whether training goes on."""
        client = self.client
        while not self._ended:
            quorum = client.next_quorum(0.5)
            if quorum is not None:
                if self._enter(quorum):
                    return True
                continue
            if client.refused:
                raise AuthorityError(f"{self.options.authority}: {client.refused}")
            if client.finished:
                self.log("the job has finished")
                return self._end()
            if client.released is not None:
                if client.released["checkpoint"]:
                    self.keeper.now()
                self.log(f"left after step {self.state.counters.step}")
                return self._end()
            if client.leaving and client.unreachable_for() > self.options.leave_timeout:
                self.log("leaving without the authority, which is not reached")
                self.keeper.now()
                return self._end()
            self._say_waiting()
        return False

    def _enter(self, quorum: Quorum) -> bool:
        """Whether this replica is in; else it has parked for the quorum after it."""
        self._free_old()
        group = Group(quorum.epoch, quorum.rank(self.member), len(quorum.members))
        self._group, self.quorum = group, quorum
        clock = self._begin_clock(quorum)
        try:
            entered = enter(quorum, group, self.client, self.state, self.options, self.log)
        except (GroupError, StateError) as error:
            if isinstance(error, StateError) and quorum.origin == "start":
                raise
            self.log(f"epoch {quorum.epoch} not entered: {error}")
            if clock is not None:
                clock.end(RecoveryStage.RENDEZVOUS)
            group.abort()
            self._park(failed=True)
            # Against a storm of epochs when something fails again and again.
            self.client.rest(self._retry)
            self._retry = min(2 * self._retry, _RETRY_S[1])
            return False
        planned = clock is None
        if clock is not None:
            clock.end(RecoveryStage.RENDEZVOUS, entered.connected_at)
            clock.end(RecoveryStage.STATE_RESTORE, entered.restored_at)
            if quorum.origin == "start" and self.state.counters.step > 0:
                clock.cause = "restart"
            elif quorum.origin == "start" or (clock.cause == "joined" and entered.copied):
                self._clock = None  # a first start, or a join: nothing was interrupted
        self._adopted = self.stepper.adopted(group)
        pause = time.monotonic() - self._parked_at if self._parked_at is not None else None
        self._parked_at = None
        self.reporter.entered(
            quorum, leads=group.rank == 0, attempt=self.state.counters.attempt,
            step=self.state.counters.step, least=self.options.min_replicas, before=self._before,
            pause_s=pause, entered=entered, planned=planned,
        )  # fmt: skip
        if self._before and self._before != group.size:
            resize = Resize(
                self._before, group.size, self.state.counters.step, quorum.cause, quorum.joined,
                quorum.left, quorum.lost, pause,
            )  # fmt: skip
            self._tell("on_scale_up" if group.size > self._before else "on_scale_down", resize)
        self.log(
            f"epoch {quorum.epoch}: rank {group.rank} of {group.size} at step "
            f"{self.state.counters.step} ({quorum.cause})"
            + (f", pause {pause * 1000:.0f} ms" if pause is not None else "")
        )
        return True

    def _begin_clock(self, quorum: Quorum) -> StageClock | None:
        """The clock of the recovery that this quorum is part of, None if the change was planned."""
        if self._clock is None and self._before == 0:
            self._clock = StageClock(self._started_at, cause="joined")
        elif self._clock is None and quorum.lost:
            # A member was lost after everybody had parked for a planned change.
            self._clock = StageClock(self._parked_at or time.monotonic())
        if self._clock is not None:
            self._clock.rounds += 1
            self._clock.lost += [name for name in quorum.lost if name not in self._clock.lost]
            if not self._clock.cause or (self._clock.cause != "joined" and quorum.lost):
                self._clock.cause = quorum.cause
        return self._clock

    def _say_waiting(self) -> None:
        waiting, step = self.client.take_waiting(), self.state.counters.step
        if waiting is not None:
            self.log(
                f"waits in place at step {step}: {waiting['have']} of at least "
                f"{waiting['need']} replicas"
            )
            self.reporter.leads = waiting["reporter"]
            if waiting["reporter"]:
                self.reporter.waiting(
                    epoch=waiting["epoch"], members=waiting["members"], need=waiting["need"],
                    step=step,
                )  # fmt: skip
        if self.reporter.leads:
            self.reporter.waits_on(epoch=self.client.claim.epoch, step=step)

    def _abort(self, notice: Notice) -> None:
        """In the client's thread: unblock whatever the training thread waits for."""
        if self._group is not None:
            self._group.abort()

    def _drop_group(self) -> None:
        if self._group is not None:
            self._free_old()
            self._old, self._group = self._group, None

    def _free_old(self) -> None:
        if self._old is not None:
            self._freeing = [each for each in self._freeing if each.is_alive()]
            for thread in (self._old.setting_up, self._old.free()):
                if thread is not None and thread.is_alive():
                    self._freeing.append(thread)
            self._old = None

    # ---- the end ---------------------------------------------------------------------------

    def _at_end(self) -> bool:
        total = self.options.total_steps
        return total is not None and self.state.counters.step >= total

    def _finish(self) -> None:
        if self._group is not None and self._group.rank == 0:
            self.keeper.now()
        self.client.bye("finished", self.state.counters.step)
        self.log(f"finished at step {self.state.counters.step}")
        self._end()

    def _end(self) -> bool:
        self._ended = True
        return False
