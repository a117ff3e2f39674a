"""A scenario around nothing but a trace, for the command line."""

from __future__ import annotations

from pathlib import Path

from controlplane.simulator.fields import BadInput, Fields
from controlplane.simulator.scenario import read
from controlplane.simulator.spec import Scenario
from controlplane.simulator.traces import READERS


def trace_scenario(text: str, nodes: int, accelerators: int) -> Scenario:
    """`KIND:PATH` on so many equal nodes; a trace with nodes of its own (openb) brings them.

    Raises BadInput as `scenario.load` does.
    """
    kind, _, path = text.partition(":")
    if kind not in READERS or not path:
        raise BadInput("--trace", text, f"must be KIND:PATH with KIND one of {', '.join(READERS)}")
    document: dict[str, object] = {"traces": [{"kind": kind, "path": path}]}
    if kind != "openb":
        document["pools"] = [{"name": "node", "count": nodes, "accelerators": accelerators}]
    return read(Fields(document, "", "--trace"), Path.cwd(), f"{kind}-{Path(path).stem}")
