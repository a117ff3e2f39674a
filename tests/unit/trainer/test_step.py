"""One step: the plain loop's numbers whatever the micro-batches, and nothing without a commit."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch

from trainer_runtime.client import Claim
from trainer_runtime.group import Group, GroupError
from trainer_runtime.options import TrainerOptions
from trainer_runtime.protocol import Phase
from trainer_runtime.replica import ReplicaState
from trainer_runtime.sampler import ElasticSampler
from trainer_runtime.step import Stepper, Superseded

SAMPLES = 30
INPUTS = torch.linspace(-2, 2, SAMPLES * 3, dtype=torch.float64).view(SAMPLES, 3)


class FakeClient:
    """A client whose epoch is in force as long as `allows` says so."""

    def __init__(self, *, allows: bool = True) -> None:
        self.allows, self.pending, self.superseded = allows, False, None
        self.claim = Claim()
        self.phases: list[Phase] = []

    def working(self, phase: Phase) -> None:
        self.phases.append(phase)

    def locked(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def commit(self, epoch: int, *, alone: bool) -> Iterator[bool]:
        yield self.allows


def make_model() -> torch.nn.Module:
    torch.manual_seed(4)
    return torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1)).to(
        torch.float64
    )


def make_stepper(client: Any, **options: Any) -> Stepper:
    usual = {"authority": "h:1", "replica": "r", "global_batch": 12}
    settings = TrainerOptions(**usual | options)
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1 / (1 + n))
    state = ReplicaState(model, optimizer, ElasticSampler(SAMPLES, 12), schedule)

    def load(indices: Sequence[int]) -> torch.Tensor:
        return INPUTS[list(indices)]

    def loss(batch: torch.Tensor) -> torch.Tensor:
        return (model(batch).squeeze(1) - batch.prod(1)).square().sum()

    return Stepper(state, client, settings, load, loss)


def plain_losses(steps: int, most: float | None = None) -> list[float]:
    """The loop that anybody would write: the mean over the batch, one backward."""
    model, sampler = make_model(), ElasticSampler(SAMPLES, 12)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1 / (1 + n))
    losses = []
    for _ in range(steps):
        batch = INPUTS[sampler.batch()]
        sampler.advance()
        optimizer.zero_grad()
        loss = (model(batch).squeeze(1) - batch.prod(1)).square().mean()
        loss.backward()
        if most is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), most)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("micro_batch", [1, 3, 5, 12])
@pytest.mark.parametrize("most", [None, 0.1])
def test_same_as_the_plain_loop(exact: bool, micro_batch: int, most: float | None) -> None:
    client = FakeClient()
    stepper = make_stepper(client, exact=exact, micro_batch=micro_batch, max_grad_norm=most)
    results = [stepper.run(Group(1, 0, 1), None)[0] for _ in range(8)]
    assert [r.loss for r in results] == pytest.approx(plain_losses(8, most), rel=1e-12)
    assert [r.step for r in results] == list(range(1, 9))
    assert client.claim.step == 8
    assert stepper.state.sampler.cursor == 96
    assert stepper.under_way is None


def weights(stepper: Stepper) -> list[Any]:
    counters, sampler = stepper.state.counters, stepper.state.sampler
    values = [p.detach().clone().tolist() for p in stepper.state.model.parameters()]
    return [*values, counters.step, counters.samples, sampler.cursor,
            stepper.state.optimizer.param_groups[0]["lr"]]  # fmt: skip


def test_refused_at_the_gate_nothing_is_applied() -> None:
    client = FakeClient(allows=False)
    stepper = make_stepper(client)
    before = weights(stepper)
    with pytest.raises(Superseded):
        stepper.run(Group(1, 0, 1), None)
    assert weights(stepper) == before
    client.allows = True
    assert stepper.run(Group(2, 0, 1), None)[0].loss == pytest.approx(plain_losses(1)[0])


def test_superseded_before_a_micro_batch_nothing_is_applied() -> None:
    client = FakeClient()
    stepper = make_stepper(client)
    before = weights(stepper)
    client.superseded = object()  # type: ignore[assignment]
    with pytest.raises(Superseded):
        stepper.run(Group(1, 0, 1), None)
    assert weights(stepper) == before


def test_failed_reduction_nothing_is_applied() -> None:
    stepper = make_stepper(FakeClient())
    before = weights(stepper)
    with pytest.raises(GroupError, match="the group is gone"):
        stepper.run(Group(1, 1, 2), None)  # of two, and never connected
    assert weights(stepper) == before
    assert stepper.under_way is not None
    assert len(stepper.under_way.indices) == 6


@pytest.mark.parametrize(("step", "epoch", "want"), [(1, 7, True), (1, 8, False), (2, 7, False)])
def test_adopts_only_what_was_committed_from_its_own_share(
    step: int, epoch: int, want: bool
) -> None:
    """The peers' state says in which epoch its last step was committed."""
    stepper = make_stepper(FakeClient())
    with pytest.raises(GroupError):
        stepper.run(Group(7, 1, 2), None)
    counters = stepper.state.counters
    counters.step, counters.epoch, counters.loss = step, epoch, 0.5
    result = stepper.adopted(Group(9, 0, 1))
    assert (result is not None) is want
    if result is not None:
        assert (result.step, result.loss, result.adopted, len(result.indices)) == (1, 0.5, True, 6)


def test_all_stop_only_if_all_want_to() -> None:
    client = FakeClient()
    stepper = make_stepper(client)
    assert stepper.run(Group(1, 0, 1), None)[1] is False
    client.pending = True
    assert stepper.run(Group(1, 0, 1), None)[1] is True


def test_phases_say_who_waits_for_whom() -> None:
    client = FakeClient()
    make_stepper(client, micro_batch=6).run(Group(1, 0, 1), None)
    assert client.phases == [Phase.COMPUTE, Phase.COMPUTE, Phase.REDUCE, Phase.COMPUTE]


def stepper_with(loss: Any, scaler: torch.amp.GradScaler | None = None, **options: Any) -> Stepper:
    """SGD on one weight, 12 samples a step: the loss of sample i is what `loss` makes of it."""
    usual = {"authority": "h:1", "replica": "r", "global_batch": 12, "shuffle": False}
    weight = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.ones_(weight.weight)
    optimizer = torch.optim.SGD(weight.parameters(), lr=0.5)
    state = ReplicaState(weight, optimizer, ElasticSampler(24, 12, shuffle=False), scaler=scaler)
    settings = TrainerOptions(**usual | options)
    client: Any = FakeClient()
    return Stepper(state, client, settings, list, lambda batch: loss(weight.weight, batch))


@pytest.mark.parametrize("micro_batch", [1, 5, 12])
def test_mean_is_by_weight(micro_batch: int) -> None:
    """Sample i has i tokens, each with loss w*i: the mean over tokens, not over samples."""

    def loss(w: torch.Tensor, batch: list[int]) -> tuple[torch.Tensor, int]:
        return w.sum() * sum(i * i for i in batch), sum(batch)

    stepper = stepper_with(loss, micro_batch=micro_batch)
    done, _ = stepper.run(Group(1, 0, 1), None)
    mean = sum(i * i for i in range(12)) / sum(range(12))  # 506 / 66
    assert done.loss == pytest.approx(mean, rel=1e-6)
    weight = next(stepper.state.model.parameters()).item()
    assert weight == pytest.approx(1 - 0.5 * mean, rel=1e-5)


def test_weights_of_nothing_are_refused_and_nothing_is_applied() -> None:
    stepper = stepper_with(lambda w, batch: (w.sum() * len(batch), 0))
    with pytest.raises(ValueError, match="loss: the weights of step 1 sum up to 0"):
        stepper.run(Group(1, 0, 1), None)
    assert not stepper.torn
    assert next(stepper.state.model.parameters()).item() == 1.0


def test_scaled_gradients_and_a_step_that_overflows() -> None:
    """An overflow leaves the weights, halves the scale and is a committed step all the same."""
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    factor = [1.0]
    stepper = stepper_with(lambda w, batch: w.sum() * factor[0] * len(batch), scaler)
    stepper.run(Group(1, 0, 1), None)
    weights = next(stepper.state.model.parameters())
    assert weights.item() == pytest.approx(0.5, rel=1e-6)
    before = weights.item()
    factor[0] = float("inf")
    done, _ = stepper.run(Group(1, 0, 1), None)
    assert (done.step, weights.item(), scaler.get_scale()) == (2, before, 512.0)
    other = stepper_with(lambda w, batch: w.sum(), torch.amp.GradScaler("cpu"))
    other.state.load(stepper.state.pack())
    assert other.state.scaler.get_scale() == 512.0


def test_scaled_batch_moves_cursor_and_rate() -> None:
    stepper = stepper_with(
        lambda w, batch: w.sum() * len(batch), batch_policy="scale", base_replicas=2,
        lr_rule="linear",
    )  # fmt: skip
    done, _ = stepper.run(Group(1, 0, 1), None)
    assert (done.samples, done.learning_rate, done.indices) == (6, 0.25, tuple(range(6)))
    assert next(stepper.state.model.parameters()).item() == 0.75
    assert stepper.state.sampler.cursor == 6
    assert stepper.state.optimizer.param_groups[0]["lr"] == 0.5


def test_failing_optimizer_leaves_a_torn_state() -> None:
    stepper = stepper_with(lambda w, batch: w.sum())

    def fails() -> None:
        raise RuntimeError("the optimizer's own fault")

    stepper.state.optimizer.step = fails  # type: ignore[method-assign,assignment]
    with pytest.raises(RuntimeError, match="own fault"):
        stepper.run(Group(1, 0, 1), None)
    assert stepper.torn
    assert stepper.state.counters.step == 0


class ReadAhead:
    """A loader that is told what comes."""

    def __init__(self) -> None:
        self.planned: list[list[tuple[int, ...]]] = []
        self.asked: list[tuple[int, ...]] = []

    def plan(self, upcoming: list[tuple[int, ...]]) -> None:
        self.planned.append(upcoming)

    def __call__(self, indices: Sequence[int]) -> torch.Tensor:
        self.asked.append(tuple(indices))
        return INPUTS[list(indices)]


def test_loader_is_told_what_this_step_and_the_next_use() -> None:
    client: Any = FakeClient()
    loader = ReadAhead()
    made = make_stepper(client, micro_batch=4)
    stepper = Stepper(made.state, client, made.options, loader, made._loss)
    for _ in range(2):
        stepper.run(Group(1, 0, 1), None)
    assert loader.planned[0][:3] == loader.asked[:3]
    assert loader.planned[0][3:] == loader.planned[1][:3] == loader.asked[3:]


def test_ddp_changes_nothing() -> None:
    """The same losses as the plain module's, over several micro-batches a step."""
    import torch.distributed as dist

    from trainer_runtime.ddp import wrap

    client: Any = FakeClient()
    made = make_stepper(client, micro_batch=5)
    wrapped = wrap(made.state.model)
    try:
        state = ReplicaState(wrapped, made.state.optimizer, made.state.sampler)

        def loss(batch: torch.Tensor) -> torch.Tensor:
            return (wrapped(batch).squeeze(1) - batch.prod(1)).square().sum()

        state.scheduler = made.state.scheduler
        stepper = Stepper(state, client, made.options, made._load, loss)
        losses = [stepper.run(Group(1, 0, 1), None)[0].loss for _ in range(4)]
        assert losses == pytest.approx(plain_losses(4), rel=1e-12)
    finally:
        dist.destroy_process_group()
