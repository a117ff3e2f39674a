"""Phases of a step, throughput, model FLOPs, stragglers: exact values on a clock of our own."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer_runtime.instruments import flops
from trainer_runtime.instruments.flops import ModelShape
from trainer_runtime.instruments.gauge import Gauge
from trainer_runtime.instruments.phases import MOST_STEPS, Spread, StepPhase, StepTimer
from trainer_runtime.instruments.stragglers import StragglerOptions, Stragglers, Verdict, across


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def one_step(timer: StepTimer, clock: Clock, *parts: tuple[StepPhase, float]) -> None:
    timer.begin()
    for phase, seconds in parts:
        timer.phase(phase)
        clock.now += seconds
    timer.end()


# ---- phases --------------------------------------------------------------------------------


def test_phases_that_come_again_add_up() -> None:
    clock = Clock()
    timer = StepTimer(clock)
    data, compute, reduce = StepPhase.DATA, StepPhase.FORWARD_BACKWARD, StepPhase.REDUCE
    one_step(timer, clock, (data, 0.25), (compute, 1.0), (data, 0.25), (compute, 1.0), (reduce, 2))
    one_step(timer, clock, (data, 1.5), (compute, 3.0), (reduce, 4))
    one_step(timer, clock, (data, 1.0), (compute, 2.5), (reduce, 0))
    times = timer.take()
    assert times is not None
    assert (times.steps, times.step) == (3, Spread(5500.0, 4500.0, 8500.0))
    assert times.phases == {
        data: Spread(1000.0, 1000.0, 1500.0),
        compute: Spread(2500.0, 2500.0, 3000.0),
        reduce: Spread(2000.0, 2000.0, 4000.0),
    }
    assert times.data_wait_ms == 1000.0
    assert times.phases_ms == {"data": 1000.0, "forward_backward": 2500.0, "reduce": 2000.0}
    assert timer.take() is None


def test_what_stands_before_the_first_mark_is_other() -> None:
    clock = Clock()
    timer = StepTimer(clock)
    timer.begin()
    clock.now += 0.5
    timer.phase(StepPhase.COMMIT)
    timer.end()
    times = timer.take()
    assert times is not None
    assert times.phases_ms == {"other": 500.0}
    assert times.data_wait_ms == 0.0


def test_a_step_that_failed_does_not_count() -> None:
    clock = Clock()
    timer = StepTimer(clock)
    timer.begin()
    timer.phase(StepPhase.REDUCE)
    clock.now += 30.0  # and fails
    clock.now += 60.0  # the recovery
    one_step(timer, clock, (StepPhase.DATA, 1.0))
    times = timer.take()
    assert times is not None
    assert (times.steps, times.phases_ms) == (1, {"data": 1000.0})


def test_marks_outside_a_step_do_nothing() -> None:
    clock = Clock()
    timer = StepTimer(clock)
    timer.phase(StepPhase.DATA)
    clock.now += 1.0
    timer.end()
    assert timer.take() is None
    assert timer.own_work_s == 0.0


def test_own_work_is_known_before_the_reduction_and_excludes_it() -> None:
    clock = Clock()
    timer = StepTimer(clock)
    timer.begin()
    timer.phase(StepPhase.DATA)
    clock.now += 0.25
    timer.phase(StepPhase.FORWARD_BACKWARD)
    clock.now += 0.5
    assert timer.own_work_s == 0.75
    clock.now += 0.25
    timer.phase(StepPhase.REDUCE)
    clock.now += 9.0
    assert timer.own_work_s == 1.0


def test_a_window_that_nobody_takes_is_bounded() -> None:
    clock = Clock()
    timer = StepTimer(clock)
    for number in range(MOST_STEPS + 5):
        one_step(timer, clock, (StepPhase.DATA, float(number)))
    times = timer.take()
    assert times is not None
    assert times.steps == MOST_STEPS
    assert times.step.p50_ms == 1000 * (5 + (MOST_STEPS - 1) / 2)


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from(StepPhase), st.integers(0, 1000)), max_size=8),
        min_size=1,
        max_size=8,
    )
)
def test_phases_sum_to_the_step(steps: list[list[tuple[StepPhase, int]]]) -> None:
    clock = Clock()
    timer = StepTimer(clock)
    for parts in steps:
        one_step(timer, clock, *parts)
    times = timer.take()
    assert times is not None
    assert sum(times.phases_ms.values()) == pytest.approx(times.step.mean_ms)
    total = sum(seconds for parts in steps for _, seconds in parts)
    assert times.step.mean_ms == pytest.approx(1000 * total / len(steps))


# ---- throughput ----------------------------------------------------------------------------


def test_rates_are_over_the_window() -> None:
    clock = Clock()
    gauge = Gauge(clock)
    for _ in range(4):
        clock.now += 0.5
        gauge.add(64, 1024, 10)
    rates = gauge.rates()
    assert (rates.seconds, rates.steps, rates.step_ms) == (2.0, 4, 500.0)
    assert (rates.samples_per_s, rates.tokens_per_s, rates.bytes_moved) == (128.0, 2048.0, 40)
    clock.now += 60.0
    gauge.restart()
    clock.now += 0.5
    gauge.add(64)
    rates = gauge.rates()
    # Unknown stays unknown, it isn't 0.
    assert (rates.samples_per_s, rates.tokens_per_s, rates.bytes_moved) == (128.0, None, None)


def test_no_steps_or_no_time_has_no_rate() -> None:
    clock = Clock()
    gauge = Gauge(clock)
    gauge.add(64, 1024)
    rates = gauge.rates()
    assert (rates.samples_per_s, rates.tokens_per_s, rates.step_ms) == (None, None, 0.0)
    gauge.restart()
    clock.now += 1.0
    assert (gauge.rates().samples_per_s, gauge.rates().step_ms) == (None, None)


# ---- model FLOPs ---------------------------------------------------------------------------


class Config:
    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


LLAMA3_8B = {
    "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
}  # fmt: skip
GPT_OSS = {
    "hidden_size": 2880, "intermediate_size": 2880, "num_attention_heads": 64, "head_dim": 64,
    "num_key_value_heads": 8, "vocab_size": 201088, "num_experts_per_tok": 4, "sliding_window": 128,
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "want"),
    [
        # 8.03 thousand million with 128256 * 4096 looked-up embeddings, which multiply nothing
        (LLAMA3_8B, 7_504_658_432),
        # gpt-oss model card (arXiv 2508.10925), table 1: 5.13 and 3.61 thousand million active
        (GPT_OSS | {"num_hidden_layers": 36, "num_local_experts": 128}, 5_131_100_160),
        (GPT_OSS | {"num_hidden_layers": 24, "num_local_experts": 32}, 3_607_142_400),
    ],
)
def test_parameters_that_multiply_a_token(config: dict[str, Any], want: int) -> None:
    assert flops.shape_of(Config(**config)).parameters == want


def test_flops_of_a_token() -> None:
    shape = flops.shape_of(Config(**LLAMA3_8B))
    want = 6 * 7_504_658_432 + 12 * 32 * 4096 * 8192
    assert flops.flops_per_token(shape, sequence_length=8192) == want
    kinds = ["sliding_attention", "full_attention"]
    config = GPT_OSS | {"num_hidden_layers": 2, "num_local_experts": 32, "layer_types": kinds}
    shape = flops.shape_of(Config(**config))
    assert shape.windows == (128, None)
    attention = 12 * 4096 * (128 + 1000)
    assert flops.flops_per_token(shape, sequence_length=1000) == 6 * shape.parameters + attention
    # a context within the window sees all of it
    assert flops.flops_per_token(shape, sequence_length=10) - 6 * shape.parameters == 12 * 4096 * (
        10 + 10
    )


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (LLAMA3_8B | {"kv_lora_rank": 512}, "kv_lora_rank: latent attention"),
        (LLAMA3_8B | {"vocab_size": None}, "vocab_size: missing in Config"),
        ({}, "hidden_size: missing in Config"),
    ],
)
def test_shapes_that_cannot_be_worked_out(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        flops.shape_of(Config(**config))


def test_shapes_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match="parameters: must be above 0"):
        ModelShape(0, (1.0,), (None,))
    with pytest.raises(ValueError, match="windows: must be one a layer, 2"):
        ModelShape(1, (1.0, 1.0), (None,))
    with pytest.raises(ValueError, match="sequence_length: must be at least 1"):
        flops.flops_per_token(ModelShape(1, (1.0,), (None,)), sequence_length=0)


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("NVIDIA H100 80GB HBM3", 989.5e12),
        ("NVIDIA H100 PCIe", 756.5e12),
        ("NVIDIA H100 NVL", 835.5e12),
        ("NVIDIA H200", 989.5e12),
        ("NVIDIA H200 MIG 1g.18gb", None),  # a slice has a part of it
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA L4", 121e12),
        ("NVIDIA L40S", 362e12),
        ("NVIDIA B200", 2250e12),
        ("AMD Instinct MI300X", 1307.4e12),
        ("NVIDIA RTX A4000", None),
        ("cpu", None),
        ("", None),
    ],
)
def test_peaks(name: str, want: float | None) -> None:
    assert flops.peak_flops(name) == want


def test_utilisation_is_unknown_rather_than_nought() -> None:
    assert flops.mfu(1000.0, 2e9, devices=2, peak=4e12) == 0.25
    for tokens, cost, devices, peak in (
        (None, 2e9, 2, 4e12), (1000.0, None, 2, 4e12), (1000.0, 2e9, 0, 4e12), (1e3, 2e9, 2, None)
    ):  # fmt: skip
        assert flops.mfu(tokens, cost, devices=devices, peak=peak) is None


# ---- stragglers ----------------------------------------------------------------------------


def watch(work: dict[str, float], steps: int, watcher: Stragglers, first: int = 0) -> list[Verdict]:
    return [v for step in range(first, first + steps) for v in watcher.observe(step, work)]


FOUR = {"a": 0.1, "b": 0.1, "c": 0.1, "d": 0.1}


def test_flagged_after_some_comparisons_and_cleared_once() -> None:
    watcher = Stragglers()
    # window 10, a comparison every 2 steps, the third one flags: 10, 12, 14 steps
    assert watch(FOUR | {"d": 0.2}, 13, watcher) == []
    (verdict,) = watcher.observe(13, FOUR | {"d": 0.2})
    assert verdict == Verdict("d", pytest.approx(0.6745 * 0.1 / 0.002), 0.2, 0.1)
    assert watcher.flagged == ("d",)
    assert watch(FOUR | {"d": 0.2}, 50, watcher, 14) == []
    (verdict,) = watch(FOUR, 50, watcher, 64)
    assert (verdict.replica, verdict.cleared, verdict.work_s) == ("d", True, 0.1)
    assert watcher.flagged == ()


@pytest.mark.parametrize(
    ("work", "want"),
    [
        (FOUR, ()),
        (FOUR | {"d": 0.1095}, ()),  # within the floor: less than 10 % slower
        (FOUR | {"d": 0.112}, ("d",)),
        (FOUR | {"d": 0.01}, ()),  # fast is no fault
        ({"a": 0.1, "b": 0.1, "c": 0.2}, ("c",)),
        ({"a": 0.10, "b": 0.11, "c": 0.12, "d": 0.13}, ()),  # a spread that all share
        (FOUR | {"c": 0.3, "d": 0.3, "e": 0.1}, ("c", "d")),
        ({"a": 0.1}, ()),
        # two: by their ratio
        ({"a": 0.1, "b": 0.14}, ()),
        ({"a": 0.1, "b": 0.16}, ("b",)),
        ({}, ()),
    ],
)
def test_who_is_flagged(work: dict[str, float], want: tuple[str, ...]) -> None:
    watcher = Stragglers()
    watch(work, 40, watcher)
    assert watcher.flagged == want


def test_a_pause_now_and_then_is_none() -> None:
    watcher = Stragglers()
    for step in range(100):
        assert watcher.observe(step, FOUR | {"d": 5.0 if step % 4 == 0 else 0.1}) == []


def test_between_the_thresholds_nothing_changes() -> None:
    between = FOUR | {"d": 0.1075}  # a score of 2.5
    watcher = Stragglers()
    assert watch(between, 40, watcher) == []
    watch(FOUR | {"d": 0.2}, 40, watcher, 40)
    assert watch(between, 40, watcher, 80) == []
    assert watcher.flagged == ("d",)


def test_who_leaves_is_forgotten_and_a_newcomer_has_a_window_of_its_own() -> None:
    watcher = Stragglers()
    watch(FOUR | {"d": 0.2}, 40, watcher)
    watcher.observe(40, {"a": 0.1, "b": 0.1, "c": 0.1})
    assert watcher.flagged == ()
    assert watch(FOUR | {"d": 0.2}, 9, watcher, 41) == []


def test_numbers_that_are_no_time_and_repeated_steps_are_passed_over() -> None:
    watcher = Stragglers()
    for bad in (math.nan, math.inf, 0.0, -1.0):
        assert watch(FOUR | {"d": bad}, 40, watcher) == []
        watcher = Stragglers()
    for _ in range(40):
        watcher.observe(7, FOUR | {"d": 0.2})
    assert watcher.flagged == ()


@settings(max_examples=30)
@given(
    st.dictionaries(st.text(max_size=3), st.floats(1e-6, 1e6), min_size=3, max_size=12),
    st.floats(1e-3, 1e3),
)
def test_scores_do_not_depend_on_the_unit(work: dict[str, float], factor: float) -> None:
    options = StragglerOptions()
    scaled = across({name: x * factor for name, x in work.items()}, options)
    for name, score in across(work, options).items():
        assert scaled[name].z == pytest.approx(score.z, rel=1e-6, abs=1e-6)
    # At most half of all can be slower than the median.
    assert sum(s.slow for s in scaled.values()) <= len(work) / 2


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"window": 0}, "window: must be at least 1"),
        ({"floor": 0.0}, "floor: must be between 0 and 1"),
        ({"clear": 4.0}, "clear: must not be above threshold"),
        ({"pair_clear": 2.0}, "pair_clear: must not be above pair_ratio"),
    ],
)
def test_options_are_checked(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StragglerOptions(**values)
