"""Log rules: what alarms, what is missed, what is refused; and the tee that feeds them."""

from __future__ import annotations

import io
import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer_runtime import wire
from trainer_runtime.instruments import logrules
from trainer_runtime.instruments.logrules import LogWatch, RuleError, load_rules, parse_rules
from trainer_runtime.instruments.tee import Lines, LogTee

LOSS = {"name": "loss", "pattern": r"loss[ =:]+(\S+)"}


def watch(*rules: dict[str, Any]) -> LogWatch:
    return LogWatch(parse_rules(list(rules)))


def told(found: list[logrules.LogMatchValues]) -> list[tuple[str, str, float | None]]:
    return [(each["replica"], each["reason"], each["value"]) for each in found]


@pytest.mark.parametrize(
    ("rule", "line", "want"),
    [
        ({"above": 20}, "loss: 19.5", []),
        ({"above": 20}, "loss: 20.0", []),
        ({"above": 20}, "loss: 2.5e1", [("above", 25.0)]),
        ({"above": 20}, "loss: inf", [("above", None)]),
        ({"above": 20}, "loss: -inf", []),
        ({"above": 20}, "loss: nan", [("nan", None)]),
        ({"above": 20}, "loss: NaN", [("nan", None)]),
        ({"above": 20}, "loss: -nan", [("nan", None)]),
        ({"above": 20, "nan": "ignore"}, "loss: nan", []),
        ({"above": math.inf}, "loss: inf", []),
        ({"above": math.inf}, "loss: nan", [("nan", None)]),
        ({"above": 20}, "loss: 1e300", [("above", None)]),  # more than a report carries
        ({"above": 20}, "loss: pending", [("not_a_number", None)]),
        ({"above": 20}, "no number", []),
        ({"below": 1}, "loss: 0.5", [("below", 0.5)]),
        ({"below": 1, "above": 2}, "loss: 1.5", []),
        ({"below": 1}, "loss: nan", [("nan", None)]),
        ({}, "loss: 3", [("match", None)]),
        ({"expect_within_s": 5}, "loss: 3", []),
        ({"recur_every_s": 5}, "loss: 3", []),
        ({"recur_every_s": 5, "above": 2}, "loss: 3", [("above", 3.0)]),
        ({"pattern": r"a(\d)?", "above": 1}, "a", [("not_a_number", None)]),
        ({"pattern": r"v=(?P<v>\S+)", "group": "v", "above": 1}, "v=2", [("above", 2.0)]),
        ({"pattern": r"\d+", "group": 0, "above": 1}, "x 7", [("above", 7.0)]),
    ],
)
def test_what_alarms(rule: dict[str, Any], line: str, want: list[tuple[str, float | None]]) -> None:
    found = watch(LOSS | rule).feed("a", line, 0.0)
    assert [(each["reason"], each["value"]) for each in found] == want
    for number, values in enumerate(found):
        assert (values["rule"], values["line"], values["missing"]) == ("loss", line, False)
        message = wire.LogMatch(seq=number, at=1.0, **values)
        sent = wire.Envelope(job="j", attempt="a", sent_at=1.0, messages=(message,))
        assert wire.decode(wire.encode(sent)) == sent


def test_the_start_is_expected_of_every_rank() -> None:
    rules = watch(LOSS | {"expect_within_s": 10})
    for rank in ("a", "b", "c"):
        rules.start(rank, 100.0)
    rules.feed("b", "loss 1", 105.0)
    assert rules.tick(110.0) == []
    assert told(rules.tick(110.5)) == [
        ("a", "missing_start", None), ("c", "missing_start", None)
    ]  # fmt: skip
    assert rules.tick(200.0) == []  # told once
    rules.start("a", 300.0)  # started again: expected again
    rules.stop("c")
    assert [each["replica"] for each in rules.tick(311.0)] == ["a"]


def test_recurrence_counts_from_the_last_match_and_is_armed_again() -> None:
    rules = watch(LOSS | {"recur_every_s": 5})
    rules.start("a", 0.0)
    assert rules.tick(1000.0) == []  # the first is the business of expect_within_s
    rules.feed("a", "loss 1", 1000.0)
    assert rules.tick(1005.0) == []
    (gap,) = rules.tick(1005.1)
    assert (gap["missing"], gap["reason"], gap["line"]) == (True, "missing_recurrence", "")
    assert rules.tick(1009.0) == []
    rules.feed("a", "loss 1", 1010.0)
    assert rules.tick(1015.0) == []
    assert told(rules.tick(1015.5)) == [("a", "missing_recurrence", None)]


def test_without_a_start_it_counts_from_the_first_line() -> None:
    rules = watch(LOSS | {"expect_within_s": 10})
    assert rules.tick(99.0) == []
    rules.feed("a", "hello", 100.0)
    assert rules.tick(110.0) == []
    assert told(rules.tick(111.0)) == [("a", "missing_start", None)]


def test_the_same_alarm_is_kept_back_for_a_while() -> None:
    rules = watch(LOSS | {"above": 1, "quiet_s": 10})
    assert told(rules.feed("a", "loss 2", 0.0)) == [("a", "above", 2.0)]
    assert rules.feed("a", "loss 3", 9.0) == []
    assert told(rules.feed("a", "loss nan", 9.0)) == [("a", "nan", None)]  # another reason
    assert told(rules.feed("b", "loss 3", 9.0)) == [("b", "above", 3.0)]  # another rank
    assert told(rules.feed("a", "loss 4", 10.0)) == [("a", "above", 4.0)]


def test_a_pattern_that_backtracks_without_end_is_given_up() -> None:
    rules = watch({"name": "bad", "pattern": "(a+)+$"}, {"name": "good", "pattern": "b"})
    line = "a" * 3000 + "b"
    found = [told(rules.feed("a", line, 20.0 * n)) for n in range(4)]
    good = ("a", "match", None)
    assert found == [[good], [good], [("a", "given_up", None), good], [good]]


def test_lines_are_cut_and_made_fit_for_a_report() -> None:
    rules = watch({"name": "x", "pattern": "x"})
    (found,) = rules.feed("a", "x\x00\udcff" + "y" * 10_000 + "\n", 0.0)
    assert len(found["line"]) == logrules.MAX_LINE
    assert found["line"].startswith("x\ufffd?yyy")
    assert rules.feed("a", "y" * 10_000 + "x", 99.0) == []  # beyond what is looked at


@given(st.text(), st.floats())
def test_any_line_can_be_sent(text: str, number: float) -> None:
    rules = watch({"name": "v", "pattern": r"(?s)value (\S+).*", "above": -1e300})
    for values in rules.feed("a", f"value {number} {text}", 0.0):
        message = wire.LogMatch(seq=0, at=1.0, **values)
        wire.encode(wire.Envelope(job="j", attempt="a", sent_at=1.0, messages=(message,)))


RULE = {"name": "r", "pattern": "x(.)"}


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ("x", r"rule \(all\): rules: must be a list of rules \(got 'x'\)"),
        ({"rules": [RULE], "other": 1}, r"rule \(all\): rules: must be a list"),
        ([RULE] * 101, "rules: must be at most 100"),
        ([RULE, 3], r"rule 2: \(rule\): must be a mapping"),
        ([{"pattern": "x"}], "rule 1: name: must be text of 1 to 63 characters"),
        ([RULE | {"name": True}], r"rule 1: name: must be text .*\(got 'True'\)"),
        ([RULE, RULE], "rule r: name: must be given once"),
        ([{"name": "r"}], "rule r: pattern: is required"),
        ([RULE | {"pattern": ""}], "rule r: pattern: must be a regular expression of 1 to"),
        ([RULE | {"pattern": "(x"}], "rule r: pattern: must be a regular expression: missing"),
        ([RULE | {"pattern": "x" * 1001}], "rule r: pattern: must be a regular expression of"),
        ([RULE | {"abov": 1}], "rule r: abov: isn't known; known: name, pattern, expect_within_s"),
        ([RULE | {"above": "20"}], r"rule r: above: must be a number \(got '20'\)"),
        ([RULE | {"above": True}], "rule r: above: must be a number"),
        ([RULE | {"above": math.nan}], "rule r: above: must be a number"),
        ([RULE | {"above": 10**400}], "rule r: above: must be a number that a float holds"),
        ([RULE | {"below": []}], "rule r: below: must be a number"),
        ([RULE | {"expect_within_s": 0}], "rule r: expect_within_s: must be seconds, above 0"),
        ([RULE | {"recur_every_s": math.inf}], "rule r: recur_every_s: must be seconds"),
        ([RULE | {"quiet_s": -1}], "rule r: quiet_s: must be seconds"),
        ([RULE | {"nan": "maybe"}], "rule r: nan: must be alarm or ignore"),
        ([RULE | {"group": 1.5}], "rule r: group: must be a group's number or name"),
        ([RULE | {"above": 1, "group": 2}], "rule r: group: must be a group of the pattern"),
        ([RULE | {"above": 1, "pattern": "x"}], "rule r: group: must be a group of the pattern"),
    ],
)
def test_rules_that_are_refused(raw: object, message: str) -> None:
    with pytest.raises(RuleError, match=message):
        parse_rules(raw)


def test_rules_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text("- name: loss\n  pattern: 'loss (\\S+)'\n  above: 20\n  below: null\n")
    (rule,) = load_rules(path)
    assert (rule.name, rule.above, rule.below, rule.nan) == ("loss", 20.0, None, "alarm")
    path.write_text(json.dumps({"rules": [{"name": "x", "pattern": "y", "recur_every_s": 3}]}))
    assert [each.recur_every_s for each in load_rules(path)] == [3.0]
    path.write_text("- [")
    with pytest.raises(ValueError, match=r"rules\.yaml: must be YAML or JSON"):
        load_rules(path)


# ---- the tee -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chunks", "want"),
    [
        ([b"one\ntwo\n"], ["one", "two"]),
        ([b"on", b"e\r", b"\ntw", b"o"], ["one", "two"]),
        ([b"10%\r20%\r"], ["10%", "20%"]),
        ([b"\n\n\n"], []),
        ([b"\xff\n"], ["\ufffd"]),
        ([b"x" * 20_000, b"y\nz\n"], ["x" * 16_384, "z"]),
        ([], []),
    ],
)
def test_chunks_become_lines(chunks: list[bytes], want: list[str]) -> None:
    lines = Lines()
    assert [line for chunk in chunks for line in lines.add(chunk)] + lines.end() == want


@given(st.binary(max_size=200), st.integers(1, 7))
def test_lines_do_not_depend_on_the_chunks(text: bytes, size: int) -> None:
    whole, cut = Lines(), Lines()
    want = whole.add(text) + whole.end()
    got = [x for i in range(0, len(text), size) for x in cut.add(text[i : i + size])] + cut.end()
    assert got == want


class Closed(io.BytesIO):
    def write(self, data: Any) -> int:
        raise BrokenPipeError("gone")


@pytest.mark.parametrize("sink", [io.BytesIO(), Closed(), None])
def test_output_is_passed_on_and_watched(sink: io.BytesIO | None) -> None:
    read, write = os.pipe()
    rules = watch(LOSS | {"above": 1, "quiet_s": 1e-9})
    found: list[logrules.LogMatchValues] = []
    ticks = iter(range(100))
    tee = LogTee(
        os.fdopen(read, "rb"), sink, "rank-3", rules.feed, found.append, lambda: float(next(ticks))
    )
    text = b"loss 1\nloss 2\n\x80\nloss nan"
    os.write(write, text)
    os.close(write)
    assert tee.join(10)
    assert told(found) == [("rank-3", "above", 2.0), ("rank-3", "nan", None)]
    if isinstance(sink, Closed):
        assert tee.problem == "output no longer passed on: gone"
    elif sink is not None:
        assert (sink.getvalue(), tee.problem) == (text, "")


def test_rules_that_fail_do_not_stop_the_output() -> None:
    read, write = os.pipe()
    sink = io.BytesIO()

    def feed(replica: str, line: str, now: float) -> list[str]:
        raise RuntimeError("no")

    tee = LogTee(os.fdopen(read, "rb"), sink, "a", feed, print)
    os.write(write, b"one\ntwo\n")
    os.close(write)
    assert tee.join(10)
    assert (sink.getvalue(), tee.problem) == (b"one\ntwo\n", "line not watched: no")
