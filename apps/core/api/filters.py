"""Filters that refuse what they don't understand instead of ignoring it."""

from __future__ import annotations

import django_filters
from django.http import HttpRequest
from rest_framework.exceptions import ValidationError


class StrictFilterSet(django_filters.FilterSet):
    """Null bytes reach PostgreSQL as a server error; here they are a 400 that names the field."""

    def is_valid(self) -> bool:
        for name in self.filters:
            if "\x00" in (self.data.get(name) or ""):
                raise ValidationError({name: "Null characters are not allowed."})
        return super().is_valid()


def number(request: HttpRequest, name: str, default: int, lowest: int, highest: int) -> int:
    """A whole number from the query; ValidationError names the parameter and its range."""
    raw = request.GET.get(name)
    if raw is None:
        return default
    try:
        value = int(raw)
    except ValueError:
        value = lowest - 1
    if not lowest <= value <= highest:
        raise ValidationError({name: f"{raw!r} is not a whole number from {lowest} to {highest}."})
    return value
