"""Pods: defaults, the Priority and DefaultTolerationSeconds admission plugins, rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.sandbox.admission import podspec
from controlplane.sandbox.errors import Cause, Forbidden
from controlplane.sandbox.kinds import POD, PRIORITYCLASS
from controlplane.sandbox.objects import Object, clone, meta, name_of

if TYPE_CHECKING:
    from controlplane.sandbox.store import Store

_UNREACHABLE = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def default(store: Store, pod: Object) -> None:
    """Fill the spec, and the status of a new pod."""
    spec = pod.setdefault("spec", {})
    podspec.default(spec)
    spec.setdefault("enableServiceLinks", True)
    if not pod.get("status"):
        pod["status"] = {"phase": "Pending", "qosClass": qos_class(spec)}


def admit(store: Store, pod: Object) -> None:
    """What admission plugins set at creation: priority, account, standard tolerations."""
    spec = pod["spec"]
    _priority(store, pod, spec)
    spec.setdefault("serviceAccountName", "default")
    spec.setdefault("serviceAccount", spec["serviceAccountName"])
    tolerations = spec.get("tolerations") or []
    for key in _UNREACHABLE:
        if not any(_covers(toleration, key) for toleration in tolerations):
            added = {"key": key, "operator": "Exists", "effect": "NoExecute"}
            tolerations = [*tolerations, {**added, "tolerationSeconds": 300}]
    spec["tolerations"] = tolerations


def _priority(store: Store, pod: Object, spec: Object) -> None:
    name = spec.get("priorityClassName")
    if name:
        found = store.find(PRIORITYCLASS, None, name)
        if found is None:
            raise _forbidden(pod, f"no PriorityClass with name {name} was found")
    else:
        marked = [pc for pc in store.list(PRIORITYCLASS) if pc.get("globalDefault")]
        found = min(marked, key=lambda pc: pc.get("value", 0), default=None)
        if found is not None:
            spec["priorityClassName"] = name_of(found)
    value = found.get("value", 0) if found else 0
    policy = (found or {}).get("preemptionPolicy", "PreemptLowerPriority")
    for key, computed in (("priority", value), ("preemptionPolicy", policy)):
        given = spec.get(key)
        if given is not None and given != computed:
            raise _forbidden(
                pod,
                f"the {'integer value of ' if key == 'priority' else 'string value of '}{key} "
                f"({given}) must not be provided in pod spec; priority admission controller "
                f"computed {computed} from the given PriorityClass name",
            )
        spec[key] = computed


def _forbidden(pod: Object, why: str) -> Forbidden:
    details = {"name": name_of(pod), "kind": POD.plural}
    return Forbidden(f'pods "{name_of(pod)}" is forbidden: {why}', details=details)


def _covers(toleration: Object, key: str) -> bool:
    effect_fits = toleration.get("effect") in (None, "", "NoExecute")
    return effect_fits and toleration.get("key") in (None, "", key)


def qos_class(spec: Object) -> str:
    """Guaranteed, Burstable or BestEffort, by cpu and memory."""
    kinds = set()
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    for container in containers:
        resources = container.get("resources") or {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        if not any(name in group for group in (requests, limits) for name in ("cpu", "memory")):
            kinds.add("BestEffort")
        elif all(n in limits and requests.get(n) == limits[n] for n in ("cpu", "memory")):
            kinds.add("Guaranteed")
        else:
            kinds.add("Burstable")
    return kinds.pop() if len(kinds) == 1 else "Burstable"


def validate(pod: Object, old: Object | None) -> list[Cause]:
    """Rules for a new pod, or for what an update may change."""
    if old is None:
        return podspec.validate(pod["spec"], "spec")
    if pod["spec"] == old["spec"]:
        return []
    causes: list[Cause] = []
    before = clone(old["spec"])
    for group in ("containers", "initContainers"):
        for mine, theirs in zip(
            before.get(group) or (), pod["spec"].get(group) or (), strict=False
        ):
            mine["image"] = theirs.get("image")
    kept = before.get("tolerations") or []
    given = pod["spec"].get("tolerations") or []
    if all(toleration in given for toleration in kept):
        before["tolerations"] = given
    for key in ("activeDeadlineSeconds", "terminationGracePeriodSeconds", "schedulingGates"):
        before[key] = pod["spec"].get(key)
        if before[key] is None:
            del before[key]
    if before != pod["spec"]:
        changed = sorted(
            key for key in {*before, *pod["spec"]} if before.get(key) != pod["spec"].get(key)
        )
        causes.append(
            Cause.forbidden(
                "spec",
                "pod updates may not change fields other than `spec.containers[*].image`,"
                "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` "
                "(only additions to existing tolerations),`spec.terminationGracePeriodSeconds` "
                f"(changed: {', '.join(changed)})",
            )
        )
    return causes + (podspec.validate(pod["spec"], "spec") if not causes else [])


def controller_of(obj: Object) -> Object | None:
    """The owner reference of the controller, if there is one."""
    owners = meta(obj).get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)
