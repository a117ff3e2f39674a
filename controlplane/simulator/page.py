"""The report: one HTML page that needs nothing else, with its plots inside."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from controlplane.simulator import plots

STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; margin: 0 auto;
  max-width: 70rem; padding: 1rem 1.5rem 3rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.25rem; margin-top: 2.5rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; }
th, td { padding: .35rem .75rem; border-bottom: 1px solid #d0d4d9; text-align: right; }
th:first-child, td:first-child { text-align: left; }
thead th { border-bottom: 2px solid #5b6470; vertical-align: bottom; }
caption { text-align: left; padding-bottom: .5rem; color: #444b54; }
figure { margin: 1.5rem 0; } figcaption { color: #444b54; }
svg { max-width: 100%; height: auto; }
"""

#: the table of figures: heading, path in the result, format
FIGURES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("Jobs finished", ("jobs", "finished"), "{:,.0f}"),
    ("Mean JCT (s)", ("jct_s", "mean"), "{:,.0f}"),
    ("JCT p50 (s)", ("jct_s", "p50"), "{:,.0f}"),
    ("JCT p99 (s)", ("jct_s", "p99"), "{:,.0f}"),
    ("Mean queueing (s)", ("queueing_s", "mean"), "{:,.0f}"),
    ("Utilization", ("capacity", "utilization"), "{:.1%}"),
    ("Productive", ("capacity", "productive_utilization"), "{:.1%}"),
    ("Idle accelerator-hours", ("capacity", "idle_h"), "{:,.0f}"),
    ("Freed, and used", ("capacity", "freed_used_ratio"), "{:.1%}"),
    ("Freed, and productive", ("capacity", "freed_productive_ratio"), "{:.1%}"),
    ("Resizes an hour", ("resizes", "per_hour"), "{:,.2f}"),
    ("Suspensions", ("resizes", "suspensions"), "{:,.0f}"),
    ("Flaps a day", ("resizes", "flaps_per_day"), "{:,.2f}"),
    ("Paused accelerator-hours", ("disruption", "paused_h"), "{:,.1f}"),
    ("Held idle accelerator-hours", ("disruption", "held_idle_h"), "{:,.1f}"),
    ("Jain index of slowdowns", ("fairness", "jain"), "{:.3f}"),
    ("Largest slowdown", ("fairness", "slowdown", "max"), "{:,.2f}"),
    ("Longest wait of inelastic pods (s)", ("reclaim", "wait_s", "max"), "{:,.1f}"),
)


def page(title: str, results: Sequence[dict[str, Any]]) -> str:
    """The page for one run, or for several on the same work."""
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head><body><main>",
        f"<h1>{html.escape(title)}</h1>",
        _lead(results),
        "<h2>Figures</h2>",
        _table(results),
    ]
    for heading, text, svg in plots.all_plots(results):
        parts += [
            f"<h2>{html.escape(heading)}</h2>",
            f"<figure>{svg}<figcaption>{html.escape(text)}</figcaption></figure>",
        ]
    parts += [_unfair(results), "</main></body></html>\n"]
    return "\n".join(parts)


def _lead(results: Sequence[dict[str, Any]]) -> str:
    first = results[0]
    names = ", ".join(result["policy"] for result in results)
    return (
        f"<p>Scenario {html.escape(first['scenario'])}, seed {first['seed']}: "
        f"{first['jobs']['submitted']:,} jobs, {first['simulated_s'] / 3600:,.1f} simulated hours. "
        f"Policies: {html.escape(names)}. Times are virtual; accelerators are counted whole.</p>"
    )


def _table(results: Sequence[dict[str, Any]]) -> str:
    heads = "".join(f'<th scope="col">{html.escape(r["policy"])}</th>' for r in results)
    rows = []
    for heading, path, form in FIGURES:
        cells = [_cell(result, path, form) for result in results]
        if any(cell != "–" for cell in cells):
            values = "".join(f"<td>{cell}</td>" for cell in cells)
            rows.append(f'<tr><th scope="row">{heading}</th>{values}</tr>')
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Figures"><table>'
        f'<thead><tr><th scope="col">Figure</th>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _cell(result: dict[str, Any], path: tuple[str, ...], form: str) -> str:
    value: Any = result
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return "–" if value is None else form.format(value)


def _unfair(results: Sequence[dict[str, Any]]) -> str:
    rows = [
        f"<tr><td>{html.escape(item['job'])}</td><td>{html.escape(result['policy'])}</td>"
        f"<td>{item['slowdown']:,.2f}</td></tr>"
        for result in results
        for item in result["fairness"]["unfair"][:50]
    ]
    beyond = results[0]["fairness"]["unfair_beyond"]
    heading = "<h2>Unfair jobs</h2>"
    if not any(result["jobs"]["finished"] for result in results):
        return ""
    if not rows:
        return f"{heading}<p>No job took more than {beyond:g} times its time alone.</p>"
    return (
        f'{heading}<div class="scroll" tabindex="0" role="region" aria-label="Unfair jobs"><table>'
        f"<caption>More than {beyond:g} times the time alone at fixed size, the worst 50 of each "
        'policy.</caption><thead><tr><th scope="col">Job</th><th scope="col">Policy</th>'
        f'<th scope="col">Slowdown</th></tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
    )
