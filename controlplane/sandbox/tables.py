"""Tables: what `kubectl get` prints (k8s.io/kubernetes `pkg/printers/internalversion`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from controlplane.sandbox.clock import parse_rfc3339
from controlplane.sandbox.kinds import KindInfo
from controlplane.sandbox.objects import Object, meta, name_of

Cell = Callable[[Object, float], Any]


@dataclass(frozen=True, slots=True)
class Column:
    """One column; `wide` columns show with `-o wide`."""

    name: str
    cell: Cell
    wide: bool = False
    type: str = "string"


def human_duration(seconds: float) -> str:
    """`90s`, `5m30s`, `3h`, `2d4h`: apimachinery's HumanDuration."""
    seconds = int(seconds)
    if seconds < 0:
        return "0s" if seconds > -2 else "<invalid>"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m" + (f"{seconds % 60}s" if seconds % 60 else "")
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h" + (f"{minutes % 60}m" if minutes % 60 else "")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return f"{days}d" + (f"{hours % 24}h" if hours % 24 else "")
    if days < 2 * 365:
        return f"{days}d"
    years = days // 365
    if years < 8 and days % 365:
        return f"{years}y{days % 365}d"
    return f"{years}y"


def _since(text: str | None, now: float) -> str:
    return human_duration(now - parse_rfc3339(text)) if text else "<unknown>"


def _age(obj: Object, now: float) -> str:
    return _since(meta(obj).get("creationTimestamp"), now)


def _spec(obj: Object) -> Object:
    return obj.get("spec") or {}


def _status(obj: Object) -> Object:
    return obj.get("status") or {}


def _spec_cell(key: str, absent: Any = "<none>") -> Cell:
    return lambda obj, now: _spec(obj).get(key, absent)


def _status_cell(key: str, absent: Any = "<none>") -> Cell:
    return lambda obj, now: _status(obj).get(key) or absent


def _condition(obj: Object, kind: str) -> Object | None:
    return next((c for c in _status(obj).get("conditions") or () if c["type"] == kind), None)


# -- pods ---------------------------------------------------------------------------------------


def _pod_ready(pod: Object, now: float) -> str:
    statuses = _status(pod).get("containerStatuses") or ()
    total = len(_spec(pod).get("containers") or ())
    return f"{sum(1 for status in statuses if status.get('ready'))}/{total}"


def _pod_status(pod: Object, now: float) -> str:
    """The reason that says most: a container's, the pod's, its phase; Terminating before all."""
    status = _status(pod)
    reason = status.get("reason") or status.get("phase") or "Unknown"
    for container in reversed(status.get("containerStatuses") or ()):
        state = container.get("state") or {}
        waiting, ended = state.get("waiting") or {}, state.get("terminated")
        if waiting.get("reason"):
            reason = waiting["reason"]
        elif ended is not None:
            signal, code = ended.get("signal"), ended.get("exitCode")
            reason = ended.get("reason") or (f"Signal:{signal}" if signal else f"ExitCode:{code}")
    if meta(pod).get("deletionTimestamp") and status.get("phase") not in ("Succeeded", "Failed"):
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return str(reason)


def _pod_restarts(pod: Object, now: float) -> str:
    statuses = _status(pod).get("containerStatuses") or ()
    return str(sum(status.get("restartCount", 0) for status in statuses))


def _pod_gates(pod: Object, now: float) -> str:
    gates = _spec(pod).get("readinessGates") or ()
    met = [g for g in gates if (_condition(pod, g["conditionType"]) or {}).get("status") == "True"]
    return f"{len(met)}/{len(gates)}" if gates else "<none>"


# -- nodes --------------------------------------------------------------------------------------


def _node_status(node: Object, now: float) -> str:
    ready = _condition(node, "Ready")
    text = "Unknown" if ready is None else "Ready" if ready["status"] == "True" else "NotReady"
    return text + (",SchedulingDisabled" if _spec(node).get("unschedulable") else "")


def _node_roles(node: Object, now: float) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = meta(node).get("labels") or {}
    roles = sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix))
    return ",".join(roles) or "<none>"


def _node_address(kind: str) -> Cell:
    def cell(node: Object, now: float) -> str:
        addresses = _status(node).get("addresses") or ()
        return next((a["address"] for a in addresses if a["type"] == kind), "<none>")

    return cell


def _node_info(key: str) -> Cell:
    return lambda node, now: (_status(node).get("nodeInfo") or {}).get(key) or "<unknown>"


# -- workloads ----------------------------------------------------------------------------------


def _template_containers(key: str) -> Cell:
    def cell(obj: Object, now: float) -> str:
        template = _spec(obj).get("template") or {}
        return ",".join(c.get(key, "") for c in _spec(template).get("containers") or ())

    return cell


def _selector(obj: Object, now: float) -> str:
    labels = (_spec(obj).get("selector") or {}).get("matchLabels") or {}
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or "<none>"


def _deployment_ready(obj: Object, now: float) -> str:
    return f"{_status(obj).get('readyReplicas', 0)}/{_spec(obj).get('replicas', 0)}"


def _job_status(job: Object, now: float) -> str:
    for kind, text in (("Complete", "Complete"), ("Failed", "Failed"), ("Suspended", "Suspended")):
        found = _condition(job, kind)
        if found is not None and found["status"] == "True":
            return text
    if meta(job).get("deletionTimestamp"):
        return "Terminating"
    return "Suspended" if _spec(job).get("suspend") else "Running"


def _job_completions(job: Object, now: float) -> str:
    done, wanted = _status(job).get("succeeded", 0), _spec(job).get("completions")
    if wanted is not None:
        return f"{done}/{wanted}"
    parallel = _spec(job).get("parallelism", 0)
    return f"{done}/1 of {parallel}" if parallel > 1 else f"{done}/1"


def _job_duration(job: Object, now: float) -> str:
    start, end = _status(job).get("startTime"), _status(job).get("completionTime")
    if not start:
        return ""
    return human_duration((parse_rfc3339(end) if end else now) - parse_rfc3339(start))


# -- events -------------------------------------------------------------------------------------


def _event_object(event: Object, now: float) -> str:
    involved = event.get("involvedObject") or {}
    return f"{(involved.get('kind') or '').lower()}/{involved.get('name') or ''}"


def _event_last(event: Object, now: float) -> str:
    return _since(event.get("lastTimestamp") or event.get("eventTime"), now)


def _event_source(event: Object, now: float) -> str:
    source = event.get("source") or {}
    found = source.get("component") or event.get("reportingComponent") or ""
    return ", ".join(part for part in (found, source.get("host")) if part)


_NAME = Column("Name", lambda obj, now: name_of(obj))
_AGE = Column("Age", _age)
_TEMPLATE = (
    Column("Containers", _template_containers("name"), wide=True),
    Column("Images", _template_containers("image"), wide=True),
    Column("Selector", _selector, wide=True),
)
_COLUMNS: dict[str, tuple[Column, ...]] = {
    "Pod": (
        _NAME,
        Column("Ready", _pod_ready),
        Column("Status", _pod_status),
        Column("Restarts", _pod_restarts),
        _AGE,
        Column("IP", _status_cell("podIP"), wide=True),
        Column("Node", _spec_cell("nodeName"), wide=True),
        Column("Nominated Node", _status_cell("nominatedNodeName"), wide=True),
        Column("Readiness Gates", _pod_gates, wide=True),
    ),
    "Node": (
        _NAME,
        Column("Status", _node_status),
        Column("Roles", _node_roles),
        _AGE,
        Column("Version", _node_info("kubeletVersion")),
        Column("Internal-IP", _node_address("InternalIP"), wide=True),
        Column("External-IP", _node_address("ExternalIP"), wide=True),
        Column("OS-Image", _node_info("osImage"), wide=True),
        Column("Kernel-Version", _node_info("kernelVersion"), wide=True),
        Column("Container-Runtime", _node_info("containerRuntimeVersion"), wide=True),
    ),
    "Job": (
        _NAME,
        Column("Status", _job_status),
        Column("Completions", _job_completions),
        Column("Duration", _job_duration),
        _AGE,
        *_TEMPLATE,
    ),
    "Deployment": (
        _NAME,
        Column("Ready", _deployment_ready),
        Column("Up-to-date", _status_cell("updatedReplicas", 0), type="integer"),
        Column("Available", _status_cell("availableReplicas", 0), type="integer"),
        _AGE,
        *_TEMPLATE,
    ),
    "ReplicaSet": (
        _NAME,
        Column("Desired", _spec_cell("replicas", 0), type="integer"),
        Column("Current", _status_cell("replicas", 0), type="integer"),
        Column("Ready", _status_cell("readyReplicas", 0), type="integer"),
        _AGE,
        *_TEMPLATE,
    ),
    "Namespace": (_NAME, Column("Status", _status_cell("phase")), _AGE),
    "Event": (
        Column("Last Seen", _event_last),
        Column("Type", lambda obj, now: obj.get("type") or ""),
        Column("Reason", lambda obj, now: obj.get("reason") or ""),
        Column("Object", _event_object),
        Column("Source", _event_source, wide=True),
        Column("Message", lambda obj, now: (obj.get("message") or "").strip()),
        Column("Count", lambda obj, now: str(obj.get("count") or 1), wide=True),
        Column("Name", lambda obj, now: name_of(obj), wide=True),
    ),
    "Secret": (
        _NAME,
        Column("Type", lambda obj, now: obj.get("type") or ""),
        Column("Data", lambda obj, now: len(obj.get("data") or {}), type="integer"),
        _AGE,
    ),
    "ConfigMap": (
        _NAME,
        Column(
            "Data",
            lambda obj, now: len(obj.get("data") or {}) + len(obj.get("binaryData") or {}),
            type="integer",
        ),
        _AGE,
    ),
    "Lease": (_NAME, Column("Holder", _spec_cell("holderIdentity", "")), _AGE),
    "PriorityClass": (
        _NAME,
        Column("Value", lambda obj, now: obj.get("value", 0), type="integer"),
        Column("Global-Default", lambda obj, now: bool(obj.get("globalDefault")), type="boolean"),
        _AGE,
        Column("PreemptionPolicy", lambda obj, now: obj.get("preemptionPolicy") or ""),
    ),
}


def table(kind: KindInfo, objects: list[Object], now: float, include: str) -> dict[str, Any]:
    """A meta.k8s.io/v1 Table; `include` is None, Metadata or Object, as the query has it."""
    columns = _COLUMNS[kind.kind]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {},
        "columnDefinitions": [
            {
                "name": column.name,
                "type": column.type,
                "format": "name" if column.name == "Name" else "",
                "description": "",
                "priority": 1 if column.wide else 0,
            }
            for column in columns
        ],
        "rows": [_row(columns, obj, now, include) for obj in objects],
    }


def _row(columns: tuple[Column, ...], obj: Object, now: float, include: str) -> dict[str, Any]:
    row: dict[str, Any] = {"cells": [column.cell(obj, now) for column in columns]}
    if include == "Object":
        row["object"] = obj
    elif include != "None":
        row["object"] = {
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": meta(obj),
        }
    return row
