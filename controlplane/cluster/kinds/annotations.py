"""What a workload says of itself by annotations. What can't be read is refused, with the remedy."""

from __future__ import annotations

import re
from collections.abc import Mapping

from controlplane.cluster import names
from controlplane.cluster.interface import Manifest, metadata

#: whole numbers in annotations have at most so many digits (they fit into 32 bits)
MOST_DIGITS = 9
#: characters of a name (RFC 1123 subdomain)
MOST_NAME = 253
#: pods that a workload may name as the first to leave
MOST_HINTS = 1000

_WEIGHT = re.compile(r"\d{1,6}(\.\d{1,6})?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
#: a label key: an optional domain and a name (Kubernetes' qualified name)
_LABEL = re.compile(
    r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)


class Malformed(ValueError):
    """A workload's own words can't be read. Names the field, the value and the remedy."""

    def __init__(self, field: str, value: object, remedy: str) -> None:
        self.field = field
        self.value = value
        self.remedy = remedy
        super().__init__(f"{field} is {value!r}. {remedy}")


def annotations_of(manifest: Manifest) -> Mapping[str, str]:
    return metadata(manifest).get("annotations") or {}


def annotated_int(manifest: Manifest, name: str, default: int, *, least: int) -> int:
    """An integer annotation. Raises Malformed for anything else."""
    text = annotations_of(manifest).get(name)
    if text is None:
        return default
    digits = text.strip()
    if not digits.isdecimal() or len(digits) > MOST_DIGITS or int(digits) < least:
        remedy = f"Write a whole number from {least} to {10**MOST_DIGITS - 1}, or remove it."
        raise Malformed(f"annotation {name}", text, remedy)
    return int(text)


def queue_of(notes: Mapping[str, str]) -> str:
    """The queue's name, as long as an object's may be. Raises Malformed for a longer one."""
    queue = notes.get(names.QUEUE) or ""
    if len(queue) > MOST_NAME:
        remedy = f"A queue's name has at most {MOST_NAME} characters."
        raise Malformed(f"annotation {names.QUEUE}", queue[:80], remedy)
    return queue


def weight_of(notes: Mapping[str, str]) -> float:
    """The workload's part among equals; 1 if it says nothing. Raises Malformed."""
    text = notes.get(names.WEIGHT)
    if text is None:
        return 1.0
    weight = float(text) if _WEIGHT.fullmatch(text.strip()) else 0.0
    if weight <= 0:
        remedy = "Write a number above 0 and below 1000000, such as 2 or 0.5, or remove it."
        raise Malformed(f"annotation {names.WEIGHT}", text[:80], remedy)
    return weight


def hints_of(notes: Mapping[str, str]) -> tuple[str, ...]:
    """Names of the pods that the workload wants to lose first, in its order. Raises Malformed."""
    field = f"annotation {names.VICTIMS}"
    hints = tuple(dict.fromkeys(p.strip() for p in notes.get(names.VICTIMS, "").split(",")))
    hints = tuple(hint for hint in hints if hint)
    if len(hints) > MOST_HINTS:
        raise Malformed(field, f"{len(hints)} pods", f"Name at most {MOST_HINTS} pods.")
    for hint in hints:
        if len(hint) > MOST_NAME or not _SUBDOMAIN.fullmatch(hint):
            remedy = "Write names of the job's pods, separated by commas, or remove it."
            raise Malformed(field, hint[:80], remedy)
    return hints


def topology_of(notes: Mapping[str, str], template: Mapping[str, str]) -> tuple[str, bool]:
    """(node label, whether all pods must lie within one value of it); ("", False) for no wish.

    Our annotations on the workload, else Kueue's on its pod template or on itself. Raises Malformed
    for what is no label, and for both wishes at once (as Kueue does, KEP-2724).
    """
    for required, preferred, places in (
        (names.TOPOLOGY_REQUIRED, names.TOPOLOGY_PREFERRED, (notes, template)),
        (names.KUEUE_TOPOLOGY_REQUIRED, names.KUEUE_TOPOLOGY_PREFERRED, (template, notes)),
    ):
        must = next((place[required] for place in places if required in place), None)
        should = next((place[preferred] for place in places if preferred in place), None)
        if must is not None and should is not None:
            remedy = f"Keep one of {required} and {preferred}."
            raise Malformed(f"annotation {preferred}", should[:80], remedy)
        if must is not None:
            return _label(required, must), True
        if should is not None:
            return _label(preferred, should), False
    return "", False


def _label(annotation: str, text: str) -> str:
    label = text.strip()
    if not _LABEL.fullmatch(label):
        remedy = "Write a node label such as topology.kubernetes.io/rack, or remove it."
        raise Malformed(f"annotation {annotation}", text[:80], remedy)
    return label
