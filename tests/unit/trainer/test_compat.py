"""The published elastic style: which signals count, and what is refused."""

from __future__ import annotations

import importlib
import os
import signal
from collections.abc import Iterator
from types import ModuleType

import pytest

_SIGNALS = (signal.SIGUSR1, signal.SIGTERM)


@pytest.fixture
def compat(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module, with no event seen yet; this process's handlers come back afterwards."""
    for name in [name for name in os.environ if name.startswith("CONCERTINA_")]:
        monkeypatch.delenv(name)
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    module = importlib.import_module("trainer_runtime.compat")
    events = module.ElasticEvents()
    monkeypatch.setattr(module, "EVENTS", events)
    events.listen()
    yield module
    events.close()
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", _SIGNALS, ids=lambda number: number.name)
def test_a_signal_is_detected_and_stays_so(compat: ModuleType, number: int) -> None:
    assert compat.elastic_event_detected() is False
    signal.raise_signal(number)
    assert [compat.elastic_event_detected() for _ in range(2)] == [True, True]


def test_other_signals_are_never_detected(compat: ModuleType) -> None:
    """As published: only SIGUSR1 stands for an elastic event."""
    signal.raise_signal(signal.SIGUSR1)
    assert compat.elastic_event_detected(signal.SIGTERM) is False
    assert compat.elastic_event_detected(sig=signal.SIGUSR1) is True


def test_a_job_of_several_replicas_is_refused(
    compat: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONCERTINA_AUTHORITY", "127.0.0.1:29400")
    monkeypatch.setenv("CONCERTINA_MIN_REPLICAS", "2")
    with pytest.raises(ValueError, match=r"^CONCERTINA_MIN_REPLICAS: is 2, .*--replicas 1"):
        compat.elastic_event_detected()
