"""Input that can't be used, and reading of typed fields."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class BadInput(ValueError):
    """`field` has a `value` that can't be used; `remedy` completes the sentence."""

    def __init__(self, field: str, value: object, remedy: str, source: str = "") -> None:
        self.field, self.value, self.remedy, self.source = field, value, remedy, source
        place = f"{source}: " if source else ""
        super().__init__(f"{place}{field} is {_shown(value)}: {remedy}.")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


class Fields:
    """A mapping from a file, read field by field; `done` refuses what nobody asked for."""

    def __init__(self, values: object, where: str, source: str) -> None:
        self.where, self.source = where, source
        if not isinstance(values, Mapping):
            raise BadInput(where or "document", values, "must be a mapping of fields", source)
        self._values = dict(values)
        self._asked: set[str] = set()

    def bad(self, name: str, remedy: str) -> BadInput:
        return BadInput(self._path(name), self._values.get(name), remedy, self.source)

    def has(self, name: str) -> bool:
        return self._values.get(name) is not None

    def raw(self, name: str, default: Any = None) -> Any:
        self._asked.add(name)
        value = self._values.get(name)
        return default if value is None else value

    def part(self, name: str) -> Fields:
        """A mapping within; empty if it isn't there."""
        return Fields(self.raw(name, {}), self._path(name), self.source)

    def parts(self, name: str) -> list[Fields]:
        """A list of mappings; empty if it isn't there."""
        found = self.raw(name, [])
        if not isinstance(found, list):
            raise self.bad(name, "must be a list")
        return [Fields(v, f"{self._path(name)}[{i}]", self.source) for i, v in enumerate(found)]

    def named(self, name: str) -> list[tuple[str, Fields]]:
        """A mapping of names to mappings."""
        inner = self.part(name)
        return [(key, inner.part(key)) for key in inner.names()]

    def names(self) -> list[str]:
        return [str(key) for key in self._values]

    def number(
        self,
        name: str,
        default: float | None = None,
        *,
        least: float = 0.0,
        most: float = math.inf,
        above: bool = False,
    ) -> float:
        """A finite number, `least` or more (more than it if `above`), at most `most`."""
        value = self.raw(name, default)
        number = _number(value)
        low = number is not None and (number <= least if above else number < least)
        if number is None or low or number > most:
            bound = f"above {least:g}" if above else f"{least:g} or more"
            limit = f" and at most {most:g}" if most < math.inf else ""
            raise self.bad(name, f"must be a number, {bound}{limit}{self._hint(name)}")
        return number

    def optional(self, name: str, *, least: float = 0.0) -> float | None:
        if not self.has(name):
            self._asked.add(name)
            return None
        return self.number(name, least=least)

    def whole(
        self, name: str, default: int | None = None, *, least: int = 0, most: int = 10_000_000
    ) -> int:
        number = self.number(name, default, least=least, most=most)
        if number != int(number):
            raise self.bad(name, "must be a whole number")
        return int(number)

    def text(self, name: str, default: str | None = None) -> str:
        value = self.raw(name, default)
        if not isinstance(value, str) or (default is None and not value):
            raise self.bad(name, f"must be a text{self._hint(name)}")
        return value

    def choice(self, name: str, allowed: tuple[str, ...], default: str | None = None) -> str:
        value = self.raw(name, default)
        if value not in allowed:
            raise self.bad(name, f"must be one of {', '.join(allowed)}")
        return str(value)

    def flag(self, name: str, default: bool) -> bool:
        value = self.raw(name, default)
        if not isinstance(value, bool):
            raise self.bad(name, "must be true or false")
        return value

    def labels(self, name: str) -> dict[str, str]:
        found = self.raw(name, {})
        if not isinstance(found, Mapping):
            raise self.bad(name, "must be a mapping of labels to values")
        return {str(key): str(value) for key, value in found.items()}

    def file(self, name: str, folder: Path) -> Path:
        """A path, relative to the folder of the document; it must be there."""
        text = self.text(name)
        path = Path(text) if Path(text).is_absolute() else folder / text
        if not path.exists():
            raise self.bad(name, f"there is no {path}; give a path relative to {folder}")
        return path

    def done(self) -> None:
        """Refuse fields that nobody asked for: they would be ignored in silence."""
        unknown = sorted(str(key) for key in self._values if str(key) not in self._asked)
        if unknown:
            known = ", ".join(sorted(self._asked))
            raise self.bad(unknown[0], f"is not a field here; the fields are {known}")

    def _path(self, name: str) -> str:
        return f"{self.where}.{name}" if self.where else name

    def _hint(self, name: str) -> str:
        return "" if self.has(name) else " (it is missing)"


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
