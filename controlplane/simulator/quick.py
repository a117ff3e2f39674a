"""A scenario around nothing but a trace, for the command line."""

from __future__ import annotations

from pathlib import Path

from controlplane.simulator.fields import BadInput, Fields
from controlplane.simulator.scenario import read
from controlplane.simulator.spec import Scenario
from controlplane.simulator.traces import READERS

#: how the published runs of the pollux workloads went: 16 nodes of 4 accelerators, a decision each
#: minute, and 30 s without progress for a job whose allocation changes, all of which starts anew
PUBLISHED_RULES = {
    "pools": [{"name": "node", "count": 16, "accelerators": 4}],
    "costs": {"resize_pause_s": 30.0, "leave_s": 0.0, "restart": True},
    "cycle": {"period_s": 60.0, "on_events": False},
    "elasticity": {
        "scaling_timeout": 0.0,
        "scale_up_snooze": 0.0,
        "cooldown": 0.0,
        "graceful_shutdown_timeout": 0.0,
    },
}


def trace_scenario(text: str, nodes: int, accelerators: int) -> Scenario:
    """`KIND:PATH` on so many equal nodes; openb brings its own, pollux the published rules.

    Raises BadInput as `scenario.load` does.
    """
    kind, _, path = text.partition(":")
    if kind not in READERS or not path:
        raise BadInput("--trace", text, f"must be KIND:PATH with KIND one of {', '.join(READERS)}")
    document: dict[str, object] = {"traces": [{"kind": kind, "path": path}]}
    if kind == "pollux":
        document |= PUBLISHED_RULES
    elif kind != "openb":
        document["pools"] = [{"name": "node", "count": nodes, "accelerators": accelerators}]
    return read(Fields(document, "", "--trace"), Path.cwd(), f"{kind}-{Path(path).stem}")
