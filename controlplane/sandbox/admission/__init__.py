"""What happens to an object before it is stored: defaults, then validation.

As in the real server this runs for every writer, the controllers included. Sources: the
defaults, strategies and validations of k8s.io/kubernetes `pkg/apis/*` and `pkg/registry/*`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from controlplane.sandbox.admission import jobs, metadata, others, pods, workloads
from controlplane.sandbox.errors import Cause, Invalid
from controlplane.sandbox.kinds import KindInfo
from controlplane.sandbox.objects import Object, name_of

if TYPE_CHECKING:
    from controlplane.sandbox.store import Store

_Default = Callable[["Store", Object], None]
_Validate = Callable[[Object, Object | None], list[Cause]]

# defaults run at creation and update; they only fill what is absent
_DEFAULTS: dict[str, _Default] = {
    "Deployment": workloads.default_deployment,
    "Event": others.default_event,
    "Job": jobs.default,
    "Namespace": others.default_namespace,
    "Node": others.default_node,
    "Pod": pods.default,
    "PriorityClass": others.default_priority_class,
    "ReplicaSet": workloads.default_replicaset,
    "Secret": others.default_secret,
}
_VALIDATIONS: dict[str, _Validate] = {
    "ConfigMap": others.validate_config_map,
    "Deployment": workloads.validate_deployment,
    "Event": others.validate_event,
    "Job": jobs.validate,
    "Lease": others.validate_lease,
    "Node": others.validate_node,
    "Pod": pods.validate,
    "PriorityClass": others.validate_priority_class,
    "ReplicaSet": workloads.validate_replicaset,
    "Secret": others.validate_secret,
}


def on_create(store: Store, kind: KindInfo, obj: Object) -> Object:
    """The object with defaults; Invalid, Forbidden, or NotFound for its namespace."""
    metadata.check_namespace(store, kind, obj)
    if default := _DEFAULTS.get(kind.kind):
        default(store, obj)
    if kind.kind == "Pod":
        pods.admit(store, obj)
    if kind.kind == "PriorityClass":
        others.admit_priority_class(store, kind, obj)
    causes = metadata.validate(kind, obj)
    if validate := _VALIDATIONS.get(kind.kind):
        causes += validate(obj, None)
    if causes:
        raise Invalid(kind, name_of(obj), causes)
    return obj


def on_update(
    store: Store, kind: KindInfo, old: Object, new: Object, subresource: str | None
) -> Object:
    """The new version with defaults; Invalid when it changes what may not change."""
    if subresource in ("status", "finalize"):
        return new
    if default := _DEFAULTS.get(kind.kind):
        default(store, new)
    causes = metadata.validate(kind, new) + metadata.validate_update(new, old)
    if validate := _VALIDATIONS.get(kind.kind):
        causes += validate(new, old)
    if causes:
        raise Invalid(kind, name_of(new), causes)
    return new
