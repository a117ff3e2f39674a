"""Kubernetes quantities: `500m`, `2Gi`, `1e3`, `8`.

Source: k8s.io/apimachinery/pkg/api/resource, Quantity's grammar.
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache

_GRAMMAR = re.compile(
    r"^([+-]?(?:\d+\.?\d*|\.\d+))(?:[eE]([+-]?\d+)|(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E))?$"
)
_SUFFIXES = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal(10) ** 3,
    "M": Decimal(10) ** 6,
    "G": Decimal(10) ** 9,
    "T": Decimal(10) ** 12,
    "P": Decimal(10) ** 15,
    "E": Decimal(10) ** 18,
    "Ki": Decimal(2) ** 10,
    "Mi": Decimal(2) ** 20,
    "Gi": Decimal(2) ** 30,
    "Ti": Decimal(2) ** 40,
    "Pi": Decimal(2) ** 50,
    "Ei": Decimal(2) ** 60,
}


@lru_cache(maxsize=4096)
def parse(text: str) -> Decimal:
    """The number a quantity stands for. Raises ValueError naming the text."""
    match = _GRAMMAR.match(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a Kubernetes quantity such as 500m, 2Gi or 8")
    number, exponent, suffix = match.groups()
    if exponent is not None:
        return Decimal(number) * Decimal(10) ** int(exponent)
    return Decimal(number) * _SUFFIXES.get(suffix or "", Decimal(1))


@lru_cache(maxsize=4096)
def units(resource: str, text: str) -> int:
    """A quantity in the units that the engine counts in, rounded up.

    `cpu` in millicores; everything else (memory in bytes, accelerators) as it is.
    """
    scale = 1000 if resource == "cpu" else 1
    return int((parse(text) * scale).to_integral_value(rounding=ROUND_CEILING))
