"""Time buckets in SQL, on SQLite and PostgreSQL: long series are thinned where they lie."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db.models import BigIntegerField, Func


class TimeBucket(Func):
    """Number of the bucket, `width_s` seconds wide, that a timestamp falls into (from 1970)."""

    output_field = BigIntegerField()

    def __init__(self, field: str, width_s: float, **extra: Any) -> None:
        super().__init__(field, **extra)
        self.width_s = width_s

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> tuple[str, Any]:
        return self.as_sql(
            compiler,
            connection,
            template=f"FLOOR(EXTRACT(EPOCH FROM %(expressions)s) / {self.width_s!r})::bigint",
            **context,
        )

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> tuple[str, Any]:
        # Julian days count whole milliseconds, and 2440587.5 is 1970-01-01: rounded to be exact.
        return self.as_sql(
            compiler,
            connection,
            template="CAST(ROUND((JULIANDAY(%(expressions)s) - 2440587.5) * 86400000.0) / 1000.0 "
            f"/ {self.width_s!r} AS INTEGER)",
            **context,
        )


def width(since: datetime, until: datetime, points: int) -> float:
    """Seconds a bucket so that [since, until] takes at most `points` buckets.

    One bucket is kept back: the range seldom starts on a bucket's edge. (For a single point the
    bucket is twice the range; the caller cuts to `points` in case an edge falls inside.)
    """
    seconds = (until - since).total_seconds()
    return max(seconds / (points - 1) if points > 1 else 2 * seconds, 0.001)
