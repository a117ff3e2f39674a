"""batch/v1 Jobs: defaults, generated selector, rules, what may change.

Source: k8s.io/kubernetes `pkg/apis/batch/{v1/defaults.go,validation}` and
`pkg/registry/batch/job/strategy.go`; elastic Indexed Jobs: KEP-3715.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.sandbox.admission import podspec
from controlplane.sandbox.errors import Cause
from controlplane.sandbox.objects import Object, clone, meta, name_of
from controlplane.sandbox.selectors import LabelSelector

if TYPE_CHECKING:
    from controlplane.sandbox.store import Store

_UID, _NAME = "controller-uid", "job-name"
_MODES = ["NonIndexed", "Indexed"]
_REPLACEMENT = ["Failed", "TerminatingOrFailed"]
_MAX_PARALLELISM = 100_000
# scheduling directives: a suspended job that never started may change these (KEP-2926)
_DIRECTIVES = ("nodeSelector", "tolerations", "schedulingGates", "affinity")


def default(store: Store, job: Object) -> None:
    """Fill the spec; a new job gets its own selector and the labels it selects."""
    spec = job.setdefault("spec", {})
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("backoffLimit", 2**31 - 1 if "backoffLimitPerIndex" in spec else 6)
    spec.setdefault("suspend", False)
    spec.setdefault(
        "podReplacementPolicy", "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed"
    )
    template = spec.setdefault("template", {})
    podspec.default(template.setdefault("spec", {}))
    if "selector" not in spec and not spec.get("manualSelector"):
        _generate_selector(job)
    template_labels = meta(template).get("labels")
    if template_labels and not meta(job).get("labels"):
        job["metadata"]["labels"] = dict(template_labels)


def _generate_selector(job: Object) -> None:
    uid, name = meta(job)["uid"], name_of(job)
    labels = job["spec"]["template"].setdefault("metadata", {}).setdefault("labels", {})
    for prefix in ("batch.kubernetes.io/", ""):
        labels[f"{prefix}{_UID}"] = uid
        labels[f"{prefix}{_NAME}"] = name
    job["spec"]["selector"] = {"matchLabels": {f"batch.kubernetes.io/{_UID}": uid}}


def validate(job: Object, old: Object | None) -> list[Cause]:
    """Rules for a job; with `old`, also for what changed."""
    spec = job["spec"]
    causes = _numbers(spec) + _mode(spec)
    template = spec["template"]["spec"]
    causes += podspec.validate(template, "spec.template.spec")
    if template.get("restartPolicy") == "Always":
        causes.append(
            Cause.unsupported("spec.template.spec.restartPolicy", "Always", ["OnFailure", "Never"])
        )
    labels = meta(spec["template"]).get("labels")
    if "selector" not in spec:
        causes.append(Cause.required("spec.selector"))
    elif not LabelSelector.of(spec["selector"]).matches(labels):
        causes.append(
            Cause.invalid(
                "spec.template.metadata.labels",
                labels,
                "`selector` does not match template `labels`",
            )
        )
    if old is None and not spec.get("manualSelector"):
        wanted = {"matchLabels": {f"batch.kubernetes.io/{_UID}": meta(job)["uid"]}}
        if spec.get("selector") != wanted:
            causes.append(
                Cause.invalid(
                    "spec.selector", spec.get("selector"), "`selector` not auto-generated"
                )
            )
    return causes + (_changes(spec, old) if old is not None else [])


def _numbers(spec: Object) -> list[Cause]:
    causes = []
    for key in (
        "parallelism",
        "completions",
        "backoffLimit",
        "activeDeadlineSeconds",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ):
        value = spec.get(key)
        if value is not None and value < 0:
            causes.append(Cause.invalid(f"spec.{key}", value, "must be greater than or equal to 0"))
    return causes


def _mode(spec: Object) -> list[Cause]:
    causes = []
    mode = spec["completionMode"]
    if mode not in _MODES:
        causes.append(Cause.unsupported("spec.completionMode", mode, _MODES))
    if spec["podReplacementPolicy"] not in _REPLACEMENT:
        causes.append(
            Cause.unsupported(
                "spec.podReplacementPolicy", spec["podReplacementPolicy"], _REPLACEMENT
            )
        )
    if mode == "Indexed":
        if spec.get("completions") is None:
            causes.append(Cause.required("spec.completions", "when completion mode is Indexed"))
        if spec["parallelism"] > _MAX_PARALLELISM:
            causes.append(
                Cause.invalid(
                    "spec.parallelism",
                    spec["parallelism"],
                    f"must be less than or equal to {_MAX_PARALLELISM} when completion mode is "
                    "Indexed",
                )
            )
    else:
        for key in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if spec.get(key) is not None:
                causes.append(
                    Cause.invalid(f"spec.{key}", spec[key], "requires indexed completion mode")
                )
    return causes


def _changes(spec: Object, old: Object) -> list[Cause]:
    before = old["spec"]
    causes = []
    if spec.get("completions") != before.get("completions"):
        causes += _completions(spec)
    for key in ("selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex"):
        if spec.get(key) != before.get(key):
            causes.append(Cause.invalid(f"spec.{key}", spec.get(key), "field is immutable"))
    template = before["template"]
    if before.get("suspend") and not (old.get("status") or {}).get("startTime"):
        template = _with_directives(template, spec["template"])
    if spec["template"] != template:
        causes.append(Cause.invalid("spec.template", "core.PodTemplateSpec", "field is immutable"))
    return causes


def _completions(spec: Object) -> list[Cause]:
    """KEP-3715: only an Indexed job's completions change, together with its parallelism."""
    value = spec.get("completions")
    if spec["completionMode"] != "Indexed":
        return [Cause.invalid("spec.completions", value, "field is immutable")]
    if value is not None and value != spec["parallelism"]:
        return [
            Cause.invalid(
                "spec.completions", value, "can only be modified in tandem with spec.parallelism"
            )
        ]
    return []


def _with_directives(old: Object, new: Object) -> Object:
    """The old template with the directives that a suspended job may change from the new one."""
    template = clone(old)
    for key in _DIRECTIVES:
        template["spec"].pop(key, None)
        if key in new["spec"]:
            template["spec"][key] = new["spec"][key]
    if "metadata" in new:
        template["metadata"] = new["metadata"]
    return template
