"""apps/v1 Deployments and ReplicaSets: defaults and rules.

Source: k8s.io/kubernetes `pkg/apis/apps/{v1/defaults.go,validation}`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from controlplane.sandbox.admission import podspec
from controlplane.sandbox.errors import Cause
from controlplane.sandbox.objects import Object, meta
from controlplane.sandbox.selectors import LabelSelector

if TYPE_CHECKING:
    from controlplane.sandbox.store import Store


def default_deployment(store: Store, deployment: Object) -> None:
    """Rolling update, 25 %/25 %, ten old revisions, ten minutes."""
    default_replicaset(store, deployment)
    spec = deployment["spec"]
    strategy = spec.setdefault("strategy", {})
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)


def default_replicaset(store: Store, obj: Object) -> None:
    """One replica, and the template's own defaults."""
    spec = obj.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    podspec.default(spec.setdefault("template", {}).setdefault("spec", {}))


def validate_replicaset(obj: Object, old: Object | None) -> list[Cause]:
    """Selector, template and counts."""
    spec = obj["spec"]
    causes: list[Cause] = []
    if spec["replicas"] < 0:
        causes.append(
            Cause.invalid("spec.replicas", spec["replicas"], "must be greater than or equal to 0")
        )
    selector = spec.get("selector")
    labels = meta(spec["template"]).get("labels")
    if selector is None:
        causes.append(Cause.required("spec.selector"))
    elif not selector.get("matchLabels") and not selector.get("matchExpressions"):
        causes.append(
            Cause.invalid("spec.selector", "{}", "empty selector is invalid for this kind")
        )
    elif not LabelSelector.of(selector).matches(labels):
        causes.append(
            Cause.invalid(
                "spec.template.metadata.labels",
                labels,
                "`selector` does not match template `labels`",
            )
        )
    template = spec["template"]["spec"]
    causes += podspec.validate(template, "spec.template.spec")
    if template.get("restartPolicy") in ("OnFailure", "Never"):
        causes.append(
            Cause.unsupported(
                "spec.template.spec.restartPolicy", template["restartPolicy"], ["Always"]
            )
        )
    if old is not None and selector != old["spec"].get("selector"):
        causes.append(Cause.invalid("spec.selector", selector, "field is immutable"))
    return causes


def validate_deployment(deployment: Object, old: Object | None) -> list[Cause]:
    """As a ReplicaSet, and the strategy."""
    causes = validate_replicaset(deployment, old)
    strategy = deployment["spec"]["strategy"]
    kinds = ["Recreate", "RollingUpdate"]
    if strategy["type"] not in kinds:
        causes.append(Cause.unsupported("spec.strategy.type", strategy["type"], kinds))
    rolling = strategy.get("rollingUpdate")
    if strategy["type"] == "Recreate" and rolling is not None:
        causes.append(
            Cause.forbidden(
                "spec.strategy.rollingUpdate",
                "may not be specified when strategy `type` is 'Recreate'",
            )
        )
    if strategy["type"] == "RollingUpdate":
        causes += _rolling(rolling or {})
    return causes


def _rolling(rolling: Object) -> list[Cause]:
    causes: list[Cause] = []
    for key, value in rolling.items():
        fine = value >= 0 if isinstance(value, int) else bool(re.fullmatch(r"\d+%", value))
        if not fine:
            causes.append(
                Cause.invalid(
                    f"spec.strategy.rollingUpdate.{key}",
                    value,
                    "must be a whole number or a percentage (e.g. 1 or 25%)",
                )
            )
    if all(value in (0, "0%") for value in rolling.values()):
        causes.append(
            Cause.invalid(
                "spec.strategy.rollingUpdate.maxUnavailable",
                rolling.get("maxUnavailable"),
                "may not be 0 when `maxSurge` is 0",
            )
        )
    return causes
