"""Batch and learning rate by the number of replicas."""

from __future__ import annotations

import pytest
import torch

from trainer_runtime.batch import BatchPolicy, BatchRule, Ramp, applied
from trainer_runtime.budget import Budget


@pytest.mark.parametrize(
    ("rule", "replicas", "want"),
    [
        (BatchRule(12), 5, (12, 1.0)),
        (BatchRule(12, lr_rule="linear"), 5, (12, 1.0)),
        (BatchRule(12, policy=BatchPolicy.SCALE), 3, (36, 1.0)),
        (BatchRule(12, policy=BatchPolicy.SCALE, lr_rule="linear"), 3, (36, 3.0)),
        (BatchRule(12, policy=BatchPolicy.SCALE, lr_rule="sqrt"), 4, (48, 2.0)),
        (BatchRule(12, 4, BatchPolicy.SCALE, 4, "linear"), 1, (4, 1 / 3)),
        (BatchRule(12, 4, BatchPolicy.SCALE, 100, "none"), 1, (4, 1.0)),
        (BatchRule(10, policy=BatchPolicy.SCALE, lr_rule=lambda s: s**0.25), 16, (160, 2.0)),
    ],
)
def test_batch_and_factor(rule: BatchRule, replicas: int, want: tuple[int, float]) -> None:
    samples = rule.size(replicas)
    assert (samples, rule.factor(samples)) == want


@pytest.mark.parametrize(
    ("values", "want"),
    [
        ({"lr_rule": "cubic"}, "lr_rule: must be one of none, linear, sqrt or a function"),
        ({"base_replicas": 0}, "base_replicas: must be at least 1"),
        ({"ramp_steps": -1}, "ramp_steps: must not be negative"),
    ],
)
def test_bad_rules_are_refused(values: dict[str, object], want: str) -> None:
    with pytest.raises(ValueError, match=want):
        BatchRule(12, **values)  # type: ignore[arg-type]


def test_rule_of_the_script_must_give_a_rate() -> None:
    rule = BatchRule(12, policy=BatchPolicy.SCALE, lr_rule=lambda scale: float("nan"))
    with pytest.raises(ValueError, match="lr_rule: gave nan for scale 2"):
        rule.factor(24)


def test_ramp_goes_from_where_it_is() -> None:
    ramp = Ramp()
    assert [ramp.aim(3.0, step, 4) for step in range(10, 16)] == [1.5, 2.0, 2.5, 3.0, 3.0, 3.0]
    assert [ramp.aim(1.0, step, 4) for step in range(16, 18)] == [2.5, 2.0]
    # Turned round half-way: from 2.0 on.
    assert [ramp.aim(3.0, step, 4) for step in range(18, 20)] == [2.25, 2.5]
    assert Ramp().aim(3.0, 7, 0) == 3.0


def test_rates_are_as_before_afterwards() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    with applied(optimizer, 2.0):
        assert optimizer.param_groups[0]["lr"] == 0.2
    assert optimizer.param_groups[0]["lr"] == 0.1


def test_budget_is_by_window() -> None:
    budget = Budget(2, 10.0)
    assert [budget.spend(now) for now in (0, 1, 2, 9.9, 10, 10.5, 11)] == [
        True, True, False, False, True, False, True,
    ]  # fmt: skip
    assert not Budget(0, 10.0).spend(0)
