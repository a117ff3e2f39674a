"""Readers of traces, by the `kind` that a scenario names; one line each in `READERS`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from controlplane.simulator.fields import Fields
from controlplane.simulator.traces.base import Trace
from controlplane.simulator.traces.elasticflow import elasticflow
from controlplane.simulator.traces.jobs_csv import jobs_csv
from controlplane.simulator.traces.openb import openb
from controlplane.simulator.traces.pollux import pollux

__all__ = ["READERS", "Trace"]

READERS: dict[str, Callable[[Fields, Path], Trace]] = {
    "jobs": jobs_csv,
    "elasticflow": elasticflow,
    "openb": openb,
    "pollux": pollux,
}
