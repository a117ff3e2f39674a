"""Query parameters of a time series: since, until, points."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.utils import timezone
from rest_framework import serializers
from rest_framework.exceptions import ValidationError

MAX_POINTS = 2000


class SeriesQuerySerializer(serializers.Serializer):
    """The last hour in at most 500 points unless the request says otherwise."""

    since = serializers.DateTimeField(required=False, help_text="Default: an hour before until.")
    until = serializers.DateTimeField(required=False, help_text="Default: now.")
    points = serializers.IntegerField(
        required=False, min_value=1, max_value=MAX_POINTS, default=500,
        help_text="At most this many points; longer series are thinned on the server.",
    )  # fmt: skip

    def validate(self, values: dict) -> dict:
        until: datetime = values.get("until") or timezone.now()
        try:
            since: datetime = values.get("since") or until - timedelta(hours=1)
        except OverflowError:
            raise ValidationError({"until": "Too early."}) from None
        if since >= until:
            raise ValidationError(
                {"since": f"{since.isoformat()} is not before until, {until.isoformat()}."}
            )
        return {**values, "since": since, "until": until}
