"""Log lines: one JSON object each in production, and no secrets in tracebacks."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable

import pytest

from apps.core.logs import console_formatter, json_formatter


def failed() -> logging.LogRecord:
    password = "open-sesame"  # noqa: F841
    try:
        raise ValueError("it broke")
    except ValueError:
        info = sys.exc_info()
    return logging.LogRecord("apps.x", logging.ERROR, __file__, 1, "no %s", ("luck",), info)


@pytest.mark.parametrize("formatter", [console_formatter, json_formatter])
def test_a_traceback_shows_no_local_variables(
    formatter: Callable[[], logging.Formatter],
) -> None:
    text = formatter().format(failed())
    assert "it broke" in text
    assert "open-sesame" not in text.replace('password = "open-sesame"', "")


def test_production_writes_one_json_object_a_line() -> None:
    text = json_formatter().format(failed())
    line = json.loads(text)
    assert "\n" not in text
    assert (line["event"], line["level"], line["logger"]) == ("no luck", "error", "apps.x")
    assert line["timestamp"].endswith("Z")
