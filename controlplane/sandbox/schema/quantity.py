"""Kubernetes quantities: `500m`, `8`, `64Gi`, `1e3`, exact.

Source: apimachinery `pkg/api/resource` (Quantity): a value, read and written back in its
canonical form (no fraction, largest fitting suffix of its own family).
"""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache

_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_FORM = re.compile(r"^([+-]?(?:\d+\.?\d*|\.\d+))(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]|[eE][+-]?\d+)?$")


@lru_cache(maxsize=4096)
def parse(text: str) -> Decimal:
    """The value of a quantity; ValueError when it isn't one."""
    return _split(text)[0]


@lru_cache(maxsize=4096)
def canonical(text: str) -> str:
    """The quantity as the real server would write it back."""
    value, family = _split(text)
    if value == 0:
        return "0"
    if family == "binary" and value == value.to_integral_value() and abs(value) >= 1024:
        power, number = 0, int(value)
        while number % 1024 == 0 and power < 6:
            number, power = number // 1024, power + 1
        suffix = next((s for s, p in _BINARY.items() if p == power), "")
        return f"{number}{suffix}"
    for suffix, exponent in sorted(_DECIMAL.items(), key=lambda item: -item[1]):
        scaled = value.scaleb(-exponent)
        if scaled == scaled.to_integral_value():
            if family == "exponent" and exponent:
                return f"{int(scaled)}e{exponent}"
            return f"{int(scaled)}{suffix}"
    # finer than a nanounit: rounded up, as the real server does
    return f"{int(value.scaleb(9).to_integral_value(rounding='ROUND_UP'))}n"


def _split(text: str) -> tuple[Decimal, str]:
    found = _FORM.match(text)
    if not found:
        raise ValueError(
            f"{text!r} is not a quantity: write a number with a suffix, as 500m or 8Gi"
        )
    number, suffix = Decimal(found[1]), found[2] or ""
    if suffix in _BINARY:
        return number * (1024 ** _BINARY[suffix]), "binary"
    if suffix in _DECIMAL:
        return number.scaleb(_DECIMAL[suffix]), "decimal"
    return number.scaleb(int(suffix[1:])), "exponent"
