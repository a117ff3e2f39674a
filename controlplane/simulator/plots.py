"""The report's plots, as SVG text: drawn by matplotlib, without a display and without a network."""

from __future__ import annotations

import importlib.util
import io
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from controlplane.simulator.fields import BadInput

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: colours that people with any colour vision tell apart (Okabe and Ito, 2008), dark enough on white
COLOURS = ("#0072b2", "#d55e00", "#007a5a", "#8a5fa8", "#8c6d00", "#56606b", "#b0457b")
DASHES = ("-", "--", "-.", ":")

Draw = Callable[["Axes"], None]


def require() -> None:
    """Raises BadInput where matplotlib isn't installed, before anybody waits for a simulation."""
    if importlib.util.find_spec("matplotlib") is None:
        raise BadInput(
            "matplotlib", "missing", "the report page needs it; run `make setup` or give --no-page"
        )


def all_plots(results: Sequence[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """(heading, caption, SVG) of each plot that these results have data for."""
    found = []
    if len(results) == 1:
        found.append(_accelerators(results[0]))
    else:
        found.append(_utilization(results))
    found.append(_jobs(results))
    if any(result["jobs"]["finished"] for result in results):
        found += [_completion(results), _slowdown(results)]
    return found


def _accelerators(result: dict[str, Any]) -> tuple[str, str, str]:
    series = result["series"]
    hours = [at / 3600 for at in series["t_s"]]

    def draw(axes: Axes) -> None:
        axes.stackplot(
            hours,
            series["inelastic"],
            series["training"],
            labels=("inelastic", "training"),
            colors=("#9aa5b1", "#66a9d4"),
        )
        axes.step(hours, series["capacity"], where="post", color="#1a1a1a", label="capacity")
        axes.plot(hours, series["waiting"], color=COLOURS[1], ls="--", label="waiting, inelastic")
        axes.set_ylabel("accelerators")
        axes.set_xlabel("hours")

    text = (
        f"Accelerators held over time. {_percent(result['capacity']['utilization'])} of all "
        f"accelerator-hours were held; {result['capacity']['idle_h']:,.0f} were idle."
    )
    return "Accelerators over time", text, _svg(draw, "Accelerators held over time")


def _utilization(results: Sequence[dict[str, Any]]) -> tuple[str, str, str]:
    def draw(axes: Axes) -> None:
        for i, result in enumerate(results):
            series = result["series"]
            there = [max(1.0, n) for n in series["capacity"]]
            used = [t + n for t, n in zip(series["productive"], series["inelastic"], strict=True)]
            share = [100 * u / n for u, n in zip(used, there, strict=True)]
            _line(axes, i, [at / 3600 for at in series["t_s"]], share, result["policy"])
        axes.set_ylim(0, 105)
        axes.set_ylabel("% of accelerators")
        axes.set_xlabel("hours")

    text = "Accelerators that make progress or serve inelastic work, of all that are ready: " + (
        "; ".join(
            f"{r['policy']} {_percent(r['capacity']['productive_utilization'])}" for r in results
        )
    )
    return "Productive utilization over time", text + ".", _svg(draw, "Productive utilization")


def _jobs(results: Sequence[dict[str, Any]]) -> tuple[str, str, str]:
    def draw(axes: Axes) -> None:
        for i, result in enumerate(results):
            series = result["series"]
            hours = [at / 3600 for at in series["t_s"]]
            _line(axes, i, hours, series["jobs_waiting"], result["policy"])
        axes.set_ylim(0, 1 + max(max(r["series"]["jobs_waiting"], default=0) for r in results))
        axes.set_ylabel("jobs that wait")
        axes.set_xlabel("hours")

    text = "Jobs that have arrived and hold no running replica."
    return "Queue over time", text, _svg(draw, "Jobs that wait over time")


def _completion(results: Sequence[dict[str, Any]]) -> tuple[str, str, str]:
    def draw(axes: Axes) -> None:
        _distribution(axes, results, "jct_s", 1 / 60)
        axes.set_xlabel("completion time (minutes, logarithmic)")

    parts = "; ".join(
        f"{r['policy']} {r['jct_s']['mean']:,.0f} s" for r in results if r["jct_s"]["n"]
    )
    return (
        "Job completion times",
        f"Share of jobs that took at most so long. Means: {parts}.",
        _svg(draw, "Distribution of job completion times"),
    )


def _slowdown(results: Sequence[dict[str, Any]]) -> tuple[str, str, str]:
    def draw(axes: Axes) -> None:
        _distribution(axes, results, "slowdown", 1.0)
        axes.set_xlabel("slowdown (logarithmic)")
        axes.axvline(3, color="#56606b", lw=1, ls=":")

    return (
        "Slowdowns",
        "Completion time over the time alone at fixed size; the dotted line is what counts as "
        "unfair.",
        _svg(draw, "Distribution of slowdowns"),
    )


def _distribution(axes: Axes, results: Sequence[dict[str, Any]], key: str, scale: float) -> None:
    for i, result in enumerate(results):
        values = sorted(row[key] * scale for row in result["per_job"] if row[key] is not None)
        shares = [100 * (n + 1) / len(values) for n in range(len(values))]
        _line(axes, i, values, shares, result["policy"])
    axes.set_xscale("log")
    axes.set_ylim(0, 101)
    axes.set_ylabel("% of jobs")


def _line(axes: Axes, i: int, x: Sequence[float], y: Sequence[float], name: str) -> None:
    """Colours and dashes both differ: nothing is told by colour alone."""
    axes.step(
        x, y, where="post", label=name, color=COLOURS[i % len(COLOURS)], ls=DASHES[i % len(DASHES)]
    )


def _svg(draw: Draw, label: str) -> str:
    """One figure as an <svg> element with a name for those who don't see it. The same results give
    the same text."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": label, "svg.fonttype": "none", "font.size": 11}):
        figure = Figure(figsize=(10.5, 4.2), layout="constrained")
        axes = figure.add_subplot()
        draw(axes)
        axes.grid(True, color="#e3e6ea", lw=0.8)
        axes.set_axisbelow(True)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        if axes.get_legend_handles_labels()[0]:
            columns = 4 if len(axes.get_legend_handles_labels()[0]) > 3 else 3
            axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=columns)
        target = io.StringIO()
        figure.savefig(target, format="svg", metadata={"Date": None, "Creator": None})
    return _inline(target.getvalue(), label)


def _inline(text: str, label: str) -> str:
    """Only the element itself, with ids of its own on a page of several."""
    body = text[text.index("<svg") :]
    prefix = re.sub(r"\W+", "-", label.lower())
    body = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', body)
    body = re.sub(r'href="#([^"]+)"', rf'href="#{prefix}-\1"', body)
    body = re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}-\1)", body)
    return body.replace("<svg", f'<svg role="img" aria-label="{label}"', 1).strip()


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"
