"""Runs the steps that are due, each as soon as those it needs are done."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

from controlplane.supervisor.stamps import Stamps, digest
from scripts.installer.problems import Problem
from scripts.installer.progress import Progress
from scripts.installer.steps import ROOT, Step


class Runner:
    """`logs` receives one file a step; `stamps` remembers what is done."""

    def __init__(self, stamps: Stamps, logs: Path) -> None:
        self.stamps = stamps
        self.logs = logs
        self._children: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._stopping = False

    def due(self, steps: list[Step]) -> dict[str, str]:
        """Digest by name of the steps to run: inputs changed, outputs missing, or a need is due."""
        found: dict[str, str] = {}
        for step in steps:
            value = digest(ROOT, step.inputs, step.extra)
            fresh = self.stamps.holds(step.name, value) and all(p.exists() for p in step.outputs)
            if not fresh or any(need in found for need in step.needs):
                found[step.name] = value
        return found

    def run(self, steps: list[Step]) -> float | None:
        """Seconds it took, or None where nothing was due. Raises Problem when a step fails."""
        due = self.due(steps)
        if not due:
            return None
        self.logs.mkdir(parents=True, exist_ok=True)
        progress = Progress(len(due))
        try:
            self._run_graph([s for s in steps if s.name in due], due, progress)
        finally:
            seconds = progress.close()
        return seconds

    def _run_graph(self, steps: list[Step], due: dict[str, str], progress: Progress) -> None:
        waiting, running = list(steps), dict[Future[None], Step]()
        done = {need for step in steps for need in step.needs} - set(due)
        with ThreadPoolExecutor(max_workers=len(steps)) as pool:
            try:
                while waiting or running:
                    for step in [s for s in waiting if done.issuperset(s.needs)]:
                        waiting.remove(step)
                        running[pool.submit(self._run_step, step, progress)] = step
                    finished, _ = wait(running, return_when=FIRST_COMPLETED)
                    for future in finished:
                        step = running.pop(future)
                        future.result()
                        self.stamps.write(step.name, due[step.name])
                        done.add(step.name)
            except BaseException:  # a failure or Ctrl-C: the other lane's work is of no use now
                self._stop_children()
                raise

    def _run_step(self, step: Step, progress: Progress) -> None:
        self.stamps.clear(step.name)
        progress.start(step.title)
        log = self.logs / f"setup-{step.name}.log"
        begun = time.monotonic()
        status = 0
        with log.open("wb") as stream:
            for command in step.commands:
                stream.write(f"$ {' '.join(command)}\n".encode())
                stream.flush()
                status = self._command(step, command, stream)
                if status != 0:
                    break
        if status != 0 and self._stopping:
            raise Problem(f'The step "{step.title}" was stopped.')
        progress.finish(step.title, failed=status != 0)
        if status != 0:
            raise Problem(explain(step, log, status, time.monotonic() - begun))

    def _command(self, step: Step, command: tuple[str, ...], stream: object) -> int:
        environment = {**os.environ, **step.environment}
        environment.pop("PIP_REQUIRE_VIRTUALENV", None)
        with self._lock:
            if self._stopping:
                return 1
            try:
                child = subprocess.Popen(
                    command,
                    cwd=step.folder,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=stream,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # type: ignore[call-overload]
                )
            except OSError as error:
                raise Problem(f"{command[0]} can't be started: {error.strerror}.") from None
            self._children.add(child)
        status: int = child.wait()
        with self._lock:
            self._children.discard(child)
        return status

    def _stop_children(self) -> None:
        """On failure or Ctrl-C: the groups that still run are ended, so nothing stays behind."""
        with self._lock:
            children = list(self._children)
            self._stopping = True
        for child in children:
            try:
                os.killpg(child.pid, signal.SIGTERM)
            except ProcessLookupError:
                continue


def explain(step: Step, log: Path, status: int, seconds: float) -> str:
    """What failed, the likely remedy, and where to read on."""
    text = log.read_text(errors="replace")
    lines = [line.strip() for line in text.splitlines() if not line.startswith("$ ")]
    lines = [line for line in reversed(lines) if line] or ["it printed nothing"]
    telling = next((line for line in lines if "error" in line.lower()), lines[0])
    if "No space left on device" in text or "ENOSPC" in text:
        return (
            f'The disk is full: the step "{step.title}" could not write. Free about 3 GiB and '
            f"run the same command again. Its output: {log}"
        )
    return (
        f'The step "{step.title}" failed after {seconds:.0f} s (exit status {status}): '
        f"{telling[:300]}\n"
        f"Its whole output: {log}. Run the same command again once the cause is gone; "
        "the steps that are done are not repeated."
    )
