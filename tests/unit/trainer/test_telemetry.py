"""Reports: bounded, in order, sent again, and never in the way."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.unit.trainer.control_plane import ControlPlane
from trainer_runtime import wire
from trainer_runtime.telemetry import Telemetry, TelemetryOptions


@pytest.fixture
def plane() -> Iterator[Callable[..., ControlPlane]]:
    made: list[ControlPlane] = []

    def make(*codes: int) -> ControlPlane:
        made.append(ControlPlane(*codes))
        return made[-1]

    yield make
    for each in made:
        each.close()


def make_telemetry(url: str, **changes: Any) -> tuple[Telemetry, list[str]]:
    said: list[str] = []
    usual = {"token": "secret", "job": "j", "backoff": (0.01, 0.05), "timeout": 5.0}
    telemetry = Telemetry(TelemetryOptions(url=url, **usual | changes), said.append)
    telemetry.attempt = "attempt-1"
    return telemetry, said


def wait_for(condition: Callable[[], Any]) -> None:
    until = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)


def test_reports_arrive_in_order_with_the_token(plane: Callable[..., ControlPlane]) -> None:
    control = plane()
    telemetry, said = make_telemetry(control.url)
    for step in range(5):
        telemetry.report(wire.Step, quorum=3, step=step, loss=1.0)
    wait_for(lambda: len(control.steps) == 5)
    telemetry.close()
    assert control.steps == [0, 1, 2, 3, 4]
    assert control.taken[0].attempt == "attempt-1"
    assert control.headers[0]["Authorization"] == "Bearer secret"
    assert control.headers[0]["path"] == "/api/v1/telemetry/"
    assert (telemetry.counts.sent, telemetry.counts.dropped, said) == (5, 0, [])


@pytest.mark.parametrize("code", [401, 403, 404, 429, 500, 503])
def test_sent_again_until_taken(plane: Callable[..., ControlPlane], code: int) -> None:
    control = plane(code, code, code)
    telemetry, said = make_telemetry(control.url)
    telemetry.report(wire.Step, quorum=0, step=1)
    wait_for(lambda: control.steps == [1])
    wait_for(lambda: telemetry.counts.sent == 1)
    telemetry.close()
    assert telemetry.counts.failures == 3
    # Complained of once, not three times.
    assert len(said) == 1
    assert f"answered {code}" in said[0]


@pytest.mark.parametrize("code", [400, 413, 422])
def test_what_is_refused_for_good_is_not_sent_again(
    plane: Callable[..., ControlPlane], code: int
) -> None:
    control = plane(code)
    telemetry, said = make_telemetry(control.url)
    telemetry.report(wire.Step, quorum=0, step=1)
    wait_for(lambda: telemetry.counts.refused == 1)
    telemetry.report(wire.Step, quorum=0, step=2)
    wait_for(lambda: control.steps == [2])
    telemetry.close()
    assert f"refused with {code}" in said[0]


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_control_plane_away_the_newest_wait_and_drops_are_counted() -> None:
    telemetry, said = make_telemetry(f"http://127.0.0.1:{closed_port()}", capacity=10, batch=4)
    for step in range(25):
        telemetry.report(wire.Step, quorum=0, step=step)
    assert telemetry.counts.dropped == 15
    assert [m.step for m in telemetry._buffer if isinstance(m, wire.Step)] == list(range(15, 25))
    wait_for(lambda: telemetry.counts.failures >= 2)
    began = time.monotonic()
    telemetry.close(0.2)
    assert time.monotonic() - began < 5
    assert telemetry.counts.sent == 0
    assert len(said) == 1


def test_buffered_reports_arrive_when_the_control_plane_is_back(
    plane: Callable[..., ControlPlane],
) -> None:
    control = plane(*[503] * 4)
    telemetry, _ = make_telemetry(control.url, capacity=5, batch=2)
    for step in range(9):
        telemetry.report(wire.Step, quorum=0, step=step)
    wait_for(lambda: control.steps[-5:] == [4, 5, 6, 7, 8])
    telemetry.close()
    assert control.steps == sorted(set(control.steps))


def test_report_does_not_wait_for_a_control_plane_that_hangs(
    plane: Callable[..., ControlPlane],
) -> None:
    control = plane()
    control.hold = threading.Event()
    telemetry, _ = make_telemetry(control.url, timeout=20.0)
    telemetry.report(wire.Step, quorum=0, step=0)
    began = time.monotonic()
    for step in range(1000):
        telemetry.report(wire.Step, quorum=0, step=step)
    assert time.monotonic() - began < 2
    telemetry.close(0.1)
    assert time.monotonic() - began < 10


def test_close_sends_what_is_left(plane: Callable[..., ControlPlane]) -> None:
    control = plane()
    telemetry, _ = make_telemetry(control.url, batch=3)
    for step in range(10):
        telemetry.report(wire.Step, quorum=0, step=step)
    telemetry.close(10.0)
    assert control.steps == list(range(10))
    assert not [t for t in threading.enumerate() if t.name == "telemetry"]


@pytest.mark.parametrize("options", [{"url": ""}, {"url": "http://127.0.0.1:1", "job": ""}])
def test_without_a_control_plane_nothing_is_kept(options: dict[str, str]) -> None:
    telemetry = Telemetry(TelemetryOptions(**options))
    telemetry.report(wire.Step, quorum=0, step=1)
    assert not telemetry.enabled
    assert not telemetry._buffer
    assert not [t for t in threading.enumerate() if t.name == "telemetry"]
    telemetry.close()


def test_sequence_rises_over_quorums_and_reporters() -> None:
    old, _ = make_telemetry("")
    old.options = TelemetryOptions(url="http://127.0.0.1:1", job="j")
    new, _ = make_telemetry("")
    new.options = old.options
    old.report(wire.Step, quorum=1, step=1)
    old.report(wire.Step, quorum=1, step=2)
    new.report(wire.Step, quorum=2, step=3)
    new.report(wire.Step, quorum=2, step=4)
    sequences = [m.seq for m in (*old._buffer, *new._buffer)]
    assert sequences == sorted(set(sequences))
    for each in (old, new):
        each.close(0.0)


def test_numbers_that_are_not_finite_become_unknown(plane: Callable[..., ControlPlane]) -> None:
    control = plane()
    telemetry, _ = make_telemetry(control.url)
    telemetry.report(wire.Step, quorum=0, step=1, loss=float("nan"), step_ms=float("inf"))
    wait_for(lambda: control.steps == [1])
    telemetry.close()
    message = control.taken[0].messages[0]
    assert isinstance(message, wire.Step)
    assert (message.loss, message.step_ms) == (None, None)
