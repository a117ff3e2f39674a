"""Label and field selectors, parsed once and matched against objects.

Source: apimachinery `pkg/labels` (the grammar of requirements) and `pkg/fields`; the field
labels of a kind are those that the real server registers for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from controlplane.sandbox.errors import BadRequest
from controlplane.sandbox.kinds import KindInfo

_KEY = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9.]*[A-Za-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
_VALUE = r"[-A-Za-z0-9_.]*"
_SET = re.compile(rf"^({_KEY})\s+(in|notin)\s+\(([^()]*)\)$")
_EQUAL = re.compile(rf"^({_KEY})\s*(==|=|!=|>|<)\s*({_VALUE})$")
_EXISTS = re.compile(rf"^(!?)\s*({_KEY})$")


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on one key; `operator` is a name of metav1.LabelSelectorOperator."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, values: Mapping[str, str]) -> bool:
        present = self.key in values
        value = values.get(self.key, "")
        match self.operator:
            case "Exists":
                return present
            case "DoesNotExist":
                return not present
            case "In":
                return present and value in self.values
            case "NotIn":
                return not present or value not in self.values
            case "Gt" | "Lt":
                if not present or not re.fullmatch(r"-?\d+", value):
                    return False
                wanted = int(self.values[0])
                return int(value) > wanted if self.operator == "Gt" else int(value) < wanted
        raise ValueError(f"unknown operator {self.operator!r}")


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """All requirements hold; none at all selects everything."""

    requirements: tuple[Requirement, ...] = ()
    nothing: bool = False

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        if self.nothing:
            return False
        labels = labels or {}
        return all(requirement.matches(labels) for requirement in self.requirements)

    @classmethod
    def parse(cls, text: str) -> LabelSelector:
        """Parse `a=b,c in (d,e),!f`; BadRequest names what can't be read."""
        requirements = []
        for part in _split(text):
            requirements.append(_requirement(part, text))
        return cls(tuple(requirements))

    @classmethod
    def of(cls, selector: Mapping[str, Any] | None) -> LabelSelector:
        """From a metav1.LabelSelector object; None selects nothing, {} everything."""
        if selector is None:
            return cls(nothing=True)
        items = [
            Requirement(key, "In", (value,))
            for key, value in (selector.get("matchLabels") or {}).items()
        ]
        for expression in selector.get("matchExpressions") or ():
            values = tuple(expression.get("values") or ())
            items.append(Requirement(expression["key"], expression["operator"], values))
        return cls(tuple(items))


def _split(text: str) -> list[str]:
    """Split at commas outside parentheses."""
    parts = re.split(r",(?![^(]*\))", text)
    return [part.strip() for part in parts if part.strip()]


def _requirement(part: str, whole: str) -> Requirement:
    if found := _SET.match(part):
        key, operator, values = found.groups()
        chosen = tuple(sorted(value.strip() for value in values.split(",")))
        return Requirement(key, "In" if operator == "in" else "NotIn", chosen)
    if found := _EQUAL.match(part):
        key, operator, value = found.groups()
        if operator in ("=", "=="):
            return Requirement(key, "In", (value,))
        if operator == "!=":
            return Requirement(key, "NotIn", (value,))
        if re.fullmatch(r"-?\d+", value):
            return Requirement(key, "Gt" if operator == ">" else "Lt", (value,))
    if found := _EXISTS.match(part):
        return Requirement(found[2], "DoesNotExist" if found[1] else "Exists")
    raise BadRequest(
        f'unable to parse requirement: "{part}" in the label selector "{whole}": write '
        "key=value, key!=value, key in (a,b), key notin (a,b), key or !key"
    )


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _at(*path: str) -> Callable[[Mapping[str, Any]], str]:
    def read(obj: Mapping[str, Any]) -> str:
        value: Any = obj
        for step in path:
            value = value.get(step) if isinstance(value, Mapping) else None
        return _text(value)

    return read


def _unschedulable(obj: Mapping[str, Any]) -> str:
    return _text(bool((obj.get("spec") or {}).get("unschedulable")))


def _zero(*path: str) -> Callable[[Mapping[str, Any]], str]:
    read = _at(*path)
    return lambda obj: read(obj) or "0"


_Readers = dict[str, Callable[[Mapping[str, Any]], str]]
_COMMON: _Readers = {
    "metadata.name": _at("metadata", "name"),
    "metadata.namespace": _at("metadata", "namespace"),
}
_INVOLVED = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
FIELDS: dict[str, _Readers] = {
    "Pod": {
        label: _at(*label.split("."))
        for label in (
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        )
    },
    "Node": {"spec.unschedulable": _unschedulable},
    "Namespace": {"status.phase": _at("status", "phase")},
    "Secret": {"type": _at("type")},
    "Job": {"status.successful": _zero("status", "succeeded")},
    "ReplicaSet": {"status.replicas": _zero("status", "replicas")},
    "Event": {
        **{f"involvedObject.{name}": _at("involvedObject", name) for name in _INVOLVED},
        "reason": _at("reason"),
        "reportingComponent": _at("reportingComponent"),
        "source": _at("source", "component"),
        "type": _at("type"),
    },
}


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """`(label, wanted value, equal?)` terms, all of which must hold."""

    terms: tuple[tuple[str, str, bool], ...]
    readers: Mapping[str, Callable[[Mapping[str, Any]], str]]

    def matches(self, obj: Mapping[str, Any]) -> bool:
        return all(
            (self.readers[label](obj) == value) is equal for label, value, equal in self.terms
        )

    def value_of(self, label: str) -> str | None:
        """The value that `label` is required to equal, if it is."""
        return next((v for name, v, equal in self.terms if name == label and equal), None)

    @classmethod
    def parse(cls, text: str, kind: KindInfo) -> FieldSelector:
        """Parse `spec.nodeName=a,status.phase!=Failed`; BadRequest for an unknown field."""
        readers = {**_COMMON, **FIELDS.get(kind.kind, {})}
        if not kind.namespaced:
            readers.pop("metadata.namespace")
        terms = []
        for part in filter(None, (piece.strip() for piece in text.split(","))):
            found = re.match(r"^([^=!]+?)\s*(!=|==|=)\s*(.*)$", part)
            if not found:
                raise BadRequest(f"invalid field selector {text!r}: {part!r} is not field=value")
            label, operator, value = found.groups()
            if label not in readers:
                raise BadRequest(
                    f'Unable to find "{kind.api_version}, Resource={kind.plural}" that match '
                    f'label selector "", field selector "{text}": field label not supported: '
                    f"{label} (supported: {', '.join(sorted(readers))})"
                )
            terms.append((label, value, operator != "!="))
        return cls(tuple(terms), readers)
