"""Containers that only pretend: they run until their time is up, a signal or a deletion."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.sandbox.clock import Clock
from controlplane.sandbox.emulator import EXIT_AFTER, EXIT_CODE, STOP_SECONDS, Settings
from controlplane.sandbox.emulator.containers import CannotStart, Exit, uid_of
from controlplane.sandbox.objects import Object, meta

_KILLED, _TERMINATED = 137, 143


@dataclass(slots=True)
class _Run:
    stop: float
    end: Exit | None = None  # in the future until its time has come


class EmulatedRuntime:
    """See `containers.Runtime`."""

    def __init__(self, clock: Clock, settings: Settings) -> None:
        self._clock = clock
        self._settings = settings
        self._runs: dict[tuple[str, str], _Run] = {}

    def start(self, pod: Object, container: Object, restart: int) -> None:
        self.adopt(pod, container["name"], self._clock.now())

    def adopt(self, pod: Object, name: str, started_at: float) -> None:
        """Go on with a container that an earlier kubelet started."""
        lasts = seconds_of(pod, EXIT_AFTER, None)
        code = int(seconds_of(pod, EXIT_CODE, 0.0) or 0)
        stop = seconds_of(pod, STOP_SECONDS, self._settings.stop)
        assert stop is not None
        end = None if lasts is None else Exit(code, started_at + lasts)
        self._runs[uid_of(pod), name] = _Run(stop, end)

    def exit_of(self, uid: str, name: str) -> Exit | None:
        run = self._runs.get((uid, name))
        due = run is not None and run.end is not None and run.end.at <= self._clock.now() + 0.001
        return run.end if run is not None and due else None

    def ends_at(self, uid: str, name: str) -> float | None:
        run = self._runs.get((uid, name))
        return run.end.at if run is not None and run.end is not None else None

    def is_running(self, uid: str, name: str) -> bool:
        return (uid, name) in self._runs and self.exit_of(uid, name) is None

    def terminate(self, uid: str, name: str, grace: float) -> None:
        run = self._runs.get((uid, name))
        if run is None:
            return
        code = _TERMINATED if run.stop <= grace else _KILLED
        at = self._clock.now() + min(run.stop, grace)
        if run.end is None or at < run.end.at:
            run.end = Exit(code, at)

    def kill(self, uid: str, code: int) -> None:
        """End all containers of a pod now."""
        for (owner, _), run in self._runs.items():
            if owner == uid:
                run.end = Exit(code, self._clock.now())

    def forget(self, uid: str) -> None:
        for key in [key for key in self._runs if key[0] == uid]:
            del self._runs[key]


def seconds_of(pod: Object, annotation: str, default: float | None) -> float | None:
    """A number from an annotation; CannotStart names one that isn't a number."""
    text = (meta(pod).get("annotations") or {}).get(annotation)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise CannotStart(
            "CreateContainerConfigError",
            f"annotation {annotation}: {text!r} is not a number of seconds: write e.g. 30",
        )
    return value
