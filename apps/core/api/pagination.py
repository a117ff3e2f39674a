"""Cursor pagination: {next, previous, results}. Stable while rows are added, and never counts."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from rest_framework.pagination import CursorPagination
from rest_framework.request import Request
from rest_framework.views import APIView


class TimePagination(CursorPagination):
    """Ordered by the view's `cursor_ordering`, newest first unless it says otherwise; a view with
    an OrderingFilter is ordered by that. Only columns that are never null can be ordered by."""

    page_size_query_param = "limit"
    max_page_size = 500
    ordering = "-id"

    def get_ordering(
        self, request: Request, queryset: QuerySet[Any], view: APIView
    ) -> tuple[str, ...]:
        ordering = getattr(view, "cursor_ordering", None)
        if ordering is None:
            return super().get_ordering(request, queryset, view)
        return tuple(ordering)
