"""The command line: `run` one policy on a scenario, or `compare` several on the same work."""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from controlplane.simulator import plots
from controlplane.simulator.compare import comparison
from controlplane.simulator.fields import BadInput
from controlplane.simulator.page import page
from controlplane.simulator.policies import POLICIES, policy_of
from controlplane.simulator.quick import trace_scenario
from controlplane.simulator.results import results
from controlplane.simulator.run import Simulation
from controlplane.simulator.scenario import load
from controlplane.simulator.spec import Scenario

OK, UNFINISHED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
DESCRIPTION = "Simulate scheduling policies in virtual time (docs/guides/simulator.md)."
EPILOG = """exit status: 0 done; 1 done, but jobs can never run (they are named); 2 input that can't
be used, with the field and the remedy; 130 interrupted, nothing written"""

OPTIONS = "ours takes options, such as ours:objective=completion_time,remaining=unknown"
SCENARIO = "a YAML file, or the name of a scenario that comes along"
TRACE = "only a trace, on equal nodes: jobs:FILE, elasticflow:FILE or openb:FOLDER"


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    options = _parser().parse_args(arguments)
    console = Console(stderr=True)
    try:
        return _main(options, console)
    except BadInput as error:
        console.print(f"[bold]Can't simulate:[/] {error}", highlight=False, soft_wrap=True)
        return BAD_INPUT
    except OSError as error:
        console.print(f"[bold]Can't write the results:[/] {error}", highlight=False, soft_wrap=True)
        return BAD_INPUT
    except KeyboardInterrupt:
        console.print("Interrupted; nothing was written.")
        return INTERRUPTED


def _main(options: argparse.Namespace, console: Console) -> int:
    names = [options.policy] if options.command == "run" else _split(options.policies)
    for name in names:
        policy_of(name)
    out: Path = options.out
    if out.exists() and (not out.is_dir() or any(out.iterdir())) and not options.force:
        raise BadInput("--out", str(out), "is there already; choose another or give --force")
    if not options.no_page:
        plots.require()
    scenario = _scenario(options)
    found = _simulate(scenario, names, options.seed, options.jobs, console)
    title = f"{scenario.name}: {names[0] if len(names) == 1 else f'{len(names)} policies'}"
    files = {"result.json": _json(found[0])}
    if options.command == "compare":
        reference = options.reference or names[0]
        if reference not in names:
            raise BadInput("--reference", reference, f"must be one of {', '.join(names)}")
        files = {"comparison.json": _json(comparison(found, reference))}
        files |= {f"{_file(r['policy'])}.json": _json(r) for r in found}
    if not options.no_page:
        files["report.html"] = page(title, found)
    _write(out, files)
    return _tell(found, out, console)


def _scenario(options: argparse.Namespace) -> Scenario:
    if (options.scenario is None) == (options.trace is None):
        raise BadInput("SCENARIO", options.scenario, "give a scenario or --trace, one of them")
    if options.scenario is not None:
        return load(options.scenario)
    return trace_scenario(options.trace, options.nodes, options.accelerators)


def _simulate(
    scenario: Scenario, names: list[str], seed: int, jobs: int, console: Console
) -> list[dict[str, Any]]:
    """The results in the order of the names. One policy a process, if there are several."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[state]}"),
               TimeElapsedColumn())  # fmt: skip
    with Progress(*columns, console=console, transient=True) as bar:
        if jobs == 1 or len(names) == 1:
            return [_one(scenario, name, seed, bar) for name in names]
        return _at_once(scenario, names, seed, jobs, bar)


def _at_once(
    scenario: Scenario, names: list[str], seed: int, jobs: int, bar: Progress
) -> list[dict[str, Any]]:
    """On several processes. They never see Ctrl-C (it goes to the whole terminal): this one ends
    them."""
    task = bar.add_task("policies", total=len(names), state="")
    with ProcessPoolExecutor(min(jobs, len(names)), mp_context=get_context("spawn")) as pool:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        waiting = {pool.submit(simulate, scenario, name, seed): name for name in names}
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            for done in as_completed(waiting):
                done.result()
                bar.update(task, advance=1, state=waiting[done])
        except BaseException:
            for child in active_children():
                child.terminate()
            raise
        return [future.result() for future in waiting]


def simulate(scenario: Scenario, policy: str, seed: int = 0) -> dict[str, Any]:
    """Run a scenario under the policy that a text names; see `results.results`."""
    return results(Simulation(scenario, policy_of(policy), seed).run(), seed)


def _one(scenario: Scenario, name: str, seed: int, bar: Progress) -> dict[str, Any]:
    simulation = Simulation(scenario, policy_of(name), seed)
    jobs, horizon = len(scenario.jobs), scenario.horizon_s
    task = bar.add_task(name, total=1.0, state="")

    def progress(at: float, finished: int, of: int) -> None:
        if simulation.cycles % 20 == 0:
            part = max(at / horizon, finished / of if of else 0.0)
            bar.update(task, completed=part, state=f"day {at / 86400:.1f}, {finished}/{jobs} jobs")

    found = results(simulation.run(progress), seed)
    bar.update(task, completed=1.0)
    return found


def _write(out: Path, files: dict[str, str]) -> None:
    """All files or none: they are made beside the folder, which is then put in place."""
    out.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        for name, text in files.items():
            (made / name).write_text(text, encoding="utf-8")
        made.chmod(0o755)
        if out.exists():
            for name in files:
                (made / name).replace(out / name)
            shutil.rmtree(made)
        else:
            made.rename(out)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def _tell(found: list[dict[str, Any]], out: Path, console: Console) -> int:
    for result in found:
        jct, capacity = result["jct_s"], result["capacity"]
        mean = "no job finished" if jct["mean"] is None else f"mean JCT {jct['mean']:,.0f} s"
        used = capacity["utilization"] or 0.0
        print(f"{result['policy']}: {mean}, {used:.1%} of the accelerator-hours held")
    print(f"Written to {out}")
    stuck = [(r["policy"], r["jobs"]["stuck"]) for r in found if r["jobs"]["stuck"]]
    for policy, names in stuck:
        listed = ", ".join(names[:10]) + (" ..." if len(names) > 10 else "")
        console.print(f"{policy}: {len(names)} jobs can never run: {listed}", soft_wrap=True)
    return UNFINISHED if stuck else OK


def _split(text: str) -> list[str]:
    """Names between commas; a comma also parts options, which hold an equals sign."""
    names: list[str] = []
    for part in text.split(","):
        if names and "=" in part and ":" not in part:
            names[-1] += f",{part}"
        else:
            names.append(part.strip())
    if len(set(names)) < len(names):
        raise BadInput("--policies", text, "must name each policy once")
    return names


def _file(policy: str) -> str:
    return "".join(c if c.isalnum() or c in "-_" else "_" for c in policy)


def _json(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m controlplane.simulator", description=DESCRIPTION, epilog=EPILOG
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="one policy", epilog=EPILOG)
    run.add_argument("--policy", default="ours", help=f"one of {', '.join(POLICIES)}; {OPTIONS}")
    compare = commands.add_parser("compare", help="several policies, the same work", epilog=EPILOG)
    compare.add_argument("--policies", required=True, help="names with commas between them")
    compare.add_argument("--reference", help="whose times others are measured by; the first")
    for command in (run, compare):
        command.add_argument("scenario", nargs="?", metavar="SCENARIO", help=SCENARIO)
        command.add_argument("--trace", metavar="KIND:PATH", help=TRACE)
        command.add_argument("--nodes", type=_count, default=16, help="with --trace: nodes")
        command.add_argument("--accelerators", type=_count, default=8, help="of each of them")
        command.add_argument("--out", type=Path, required=True, help="folder of the results")
        command.add_argument("--force", action="store_true", help="write over files in --out")
        command.add_argument("--seed", type=int, default=0, help="of random node failures")
        command.add_argument("--jobs", type=_count, default=1, help="processes at once")
        command.add_argument("--no-page", action="store_true", help="only the JSON files")
    return parser


def _count(text: str) -> int:
    number = int(text) if text.isdigit() else 0
    if not 1 <= number <= 100_000:
        raise argparse.ArgumentTypeError(f"is {text!r}: must be a whole number from 1 to 100000")
    return number


if __name__ == "__main__":
    sys.exit(main())
