"""What a kubelet knows of a pod's containers, and the status that it writes from that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from controlplane.sandbox.clock import parse_rfc3339, rfc3339
from controlplane.sandbox.controllers.pods import set_condition
from controlplane.sandbox.objects import Object, meta


@dataclass(frozen=True, slots=True)
class Exit:
    """How a container ended: exit code (128 + signal number for a signal) and when (unix s)."""

    code: int
    at: float


class CannotStart(Exception):
    """A container that can't be started: the waiting state's reason and message."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason, self.message = reason, message


class Runtime(Protocol):
    """Runs containers: emulated ones, or processes on this machine."""

    def start(self, pod: Object, container: Object, restart: int) -> None:
        """Start one; CannotStart."""

    def exit_of(self, uid: str, name: str) -> Exit | None:
        """How it ended; None while it runs."""

    def ends_at(self, uid: str, name: str) -> float | None:
        """When it will end by itself, where that is known."""

    def is_running(self, uid: str, name: str) -> bool:
        """Whether this runtime has it."""

    def terminate(self, uid: str, name: str, grace: float) -> None:
        """SIGTERM, and SIGKILL after `grace` seconds."""

    def forget(self, uid: str) -> None:
        """End whatever is left of the pod."""


@dataclass(slots=True)
class Container:
    """One container: waiting, running or ended. Times are unix seconds."""

    name: str
    image: str
    restarts: int = 0
    started_at: float | None = None
    ended: Exit | None = None
    last: tuple[float | None, Exit] | None = None  # started, ended: the run before
    waiting: str = "ContainerCreating"
    message: str = ""
    restart_at: float | None = None

    @property
    def running(self) -> bool:
        return self.started_at is not None and self.ended is None

    def begin(self, now: float) -> None:
        """It runs."""
        self.started_at, self.ended, self.restart_at = now, None, None
        self.waiting = self.message = ""

    def wait_to_restart(self, when: float, seconds: float) -> None:
        """It ended and will be started again at `when`."""
        assert self.ended is not None
        self.last = (self.started_at, self.ended)
        self.started_at, self.ended = None, None
        self.waiting, self.restart_at = "CrashLoopBackOff", when
        self.message = f"back-off {seconds:g}s restarting failed container={self.name}"

    @classmethod
    def restore(cls, spec: Object, status: Object | None) -> Container:
        """From what an earlier kubelet wrote."""
        found = cls(name=spec["name"], image=spec.get("image") or "")
        if status is None:
            return found
        state = status.get("state") or {}
        found.restarts = status.get("restartCount", 0)
        if running := state.get("running"):
            found.begin(parse_rfc3339(running["startedAt"]))
        elif ended := state.get("terminated"):
            found.started_at, found.ended = _run_of(ended)
            found.waiting = ""
        elif waiting := state.get("waiting"):
            found.waiting = waiting.get("reason") or found.waiting
            found.message = waiting.get("message") or ""
            if found.waiting == "CrashLoopBackOff":
                found.restart_at = 0.0
        if last := (status.get("lastState") or {}).get("terminated"):
            found.last = _run_of(last)
        return found

    def status(self, *, ready: bool) -> Object:
        """Its entry in containerStatuses."""
        result: Object = {
            "name": self.name,
            "image": self.image,
            "imageID": "",
            "ready": ready and self.running,
            "started": self.running,
            "restartCount": self.restarts,
            "state": self._state(),
            "lastState": {},
        }
        if self.last is not None:
            result["lastState"] = {"terminated": _terminated(*self.last)}
        return result

    def _state(self) -> Object:
        if self.ended is not None:
            return {"terminated": _terminated(self.started_at, self.ended)}
        if self.started_at is not None:
            return {"running": {"startedAt": rfc3339(self.started_at)}}
        waiting = {"reason": self.waiting}
        if self.message:
            waiting["message"] = self.message
        return {"waiting": waiting}


def _run_of(ended: Object) -> tuple[float | None, Exit]:
    started, finished = ended.get("startedAt"), ended.get("finishedAt")
    at = parse_rfc3339(finished) if finished else 0.0
    return (parse_rfc3339(started) if started else None), Exit(ended.get("exitCode", 0), at)


def _terminated(started: float | None, ended: Exit) -> Object:
    result: Object = {
        "exitCode": ended.code,
        "reason": "Completed" if ended.code == 0 else "Error",
        "finishedAt": rfc3339(ended.at),
    }
    if ended.code > 128:
        result["signal"] = ended.code - 128
    if started is not None:
        result["startedAt"] = rfc3339(started)
    return result


@dataclass(slots=True)
class PodRecord:
    """One pod on its node. `boot_at`: when an emulated pod may run; `stopping`: SIGTERM was sent;
    `killed`: it fails whatever its restart policy; `node_ready`: whether its node is."""

    uid: str
    ip: str
    containers: list[Container]
    boot_at: float | None = None
    stopping: bool = False
    killed: bool = False
    node_ready: bool = True

    @property
    def running(self) -> bool:
        """Whether a container runs."""
        return any(container.running for container in self.containers)


def write_status(status: Object, pod: Object, record: PodRecord, phase: str, now: float) -> None:
    """Bring a pod's status (changed in place) to what the record says."""
    booted = phase in ("Running", "Succeeded", "Failed")
    ready = phase == "Running" and all(c.running for c in record.containers)
    status["phase"] = phase
    status["hostIP"] = "127.0.0.1"
    status["hostIPs"] = [{"ip": "127.0.0.1"}]
    status.setdefault("startTime", rfc3339(now))
    if booted or record.running:
        status["podIP"], status["podIPs"] = record.ip, [{"ip": record.ip}]
    status["containerStatuses"] = [c.status(ready=True) for c in record.containers]
    init = pod["spec"].get("initContainers") or ()
    if init:
        status["initContainerStatuses"] = [_init_status(c, booted, now, status) for c in init]
    waits = "" if booted or not init else "ContainersNotInitialized"
    set_condition(status, "Initialized", "False" if waits else "True", waits, "", now)
    why = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}.get(phase, "ContainersNotReady")
    broken = [c.name for c in record.containers if not c.running]
    text = f"containers with unready status: [{' '.join(broken)}]" if broken else ""
    for name in ("ContainersReady", "Ready"):
        if ready and name == "Ready" and not record.node_ready:
            set_condition(status, name, "False", "NodeNotReady", "", now)
        elif ready:
            set_condition(status, name, "True", "", "", now)
        else:
            set_condition(status, name, "False", why, text, now)


def _init_status(container: Object, booted: bool, now: float, status: Object) -> Object:
    """Init containers of emulated pods end as the pod starts; sidecars run on."""
    earlier = next(
        (c for c in status.get("initContainerStatuses") or () if c["name"] == container["name"]),
        None,
    )
    if booted and earlier is not None and "waiting" not in earlier["state"]:
        return earlier
    found = Container(container["name"], container.get("image") or "", waiting="PodInitializing")
    if booted:
        found.begin(now)
        if container.get("restartPolicy") != "Always":
            found.ended = Exit(0, now)
    return found.status(ready=True)


def uid_of(pod: Object) -> str:
    return str(meta(pod)["uid"])
