"""The engine stays pure, its documents are refused when they aren't its own, its codes are listed
for readers, and a command is checked again before it is written."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from controlplane.engine.commands import Command, CommandKind
from controlplane.engine.reasons import SENTENCES, ReasonCode, because
from controlplane.engine.serialize import FormatError, snapshot_from_json, snapshot_to_json
from controlplane.engine.types import WorkloadKey
from controlplane.engine.validation import still_valid
from tests.builders import (
    NOW,
    make_nodes,
    make_pod,
    make_replicas,
    make_snapshot,
    make_workload,
)

ROOT = Path(__file__).parents[3]


def test_importing_the_engine_leaves_the_frameworks_out():
    code = (
        "import sys, pkgutil, importlib, controlplane.engine as engine\n"
        "for m in pkgutil.iter_modules(engine.__path__):\n"
        "    importlib.import_module('controlplane.engine.' + m.name)\n"
        "print(sorted({'django', 'celery', 'kubernetes', 'redis', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_every_code_has_a_sentence_and_a_line_in_the_page():
    assert set(SENTENCES) == set(ReasonCode)
    page = (ROOT / "docs" / "reason-codes.md").read_text()
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == [code.value for code in ReasonCode]
    for code, sentence in SENTENCES.items():
        assert f"| `{code.value}` | {sentence} |" in page


def test_a_sentence_without_its_numbers_is_a_mistake():
    with pytest.raises(KeyError, match="to"):
        because(ReasonCode.GROWS, from_=1)


@pytest.mark.parametrize(
    ("change", "want"),
    [
        ({"format": 99}, "format is 99; this version reads 1"),
        ({"format": None}, "format is None"),
        ({"pods": 3}, "ClusterSnapshot.pods is 3"),
        ({"workloads": [{"key": "nonsense"}]}, "no workload"),
    ],
)
def test_a_document_of_another_form_is_refused(change, want):
    document = snapshot_to_json(make_snapshot(make_nodes(1)))
    with pytest.raises(FormatError, match=re.escape(want)):
        snapshot_from_json({**document, **change})


def test_unknown_fields_of_a_document_are_ignored():
    snapshot = make_snapshot(make_nodes(1), [make_pod()], [make_workload()])
    document = snapshot_to_json(snapshot)
    document["pods"][0]["later_addition"] = 1
    assert snapshot_from_json(document) == snapshot


@pytest.mark.parametrize("text", ["", "Job/ml", "Job//x", "a/b/c/d"])
def test_a_workload_key_is_read_strictly(text):
    with pytest.raises(ValueError, match="write Kind/namespace/name"):
        WorkloadKey.parse(text)


JOB = make_workload("a", granted=2)
RUNNING = make_replicas(JOB, ["n00", "n01"])


def command(kind: CommandKind, before: int, after: int) -> Command:
    reason = because(ReasonCode.GROWS, from_=before, to=after)
    return Command(kind, JOB.key, before, after, (), "1", reason)


RESIZE, ADMIT = CommandKind.RESIZE, CommandKind.ADMIT


@pytest.mark.parametrize(
    ("job", "pods", "sent", "want"),
    [
        ({}, [], (RESIZE, 2, 4), None),
        ({}, [], (RESIZE, 2, 1), None),
        ({}, [], (RESIZE, 2, 5), ReasonCode.NO_LONGER_FITS),
        ({}, [make_pod("w", priority=900)], (RESIZE, 2, 4), ReasonCode.NO_LONGER_FITS),
        ({}, [make_pod("w", priority=1)], (RESIZE, 2, 4), None),
        ({"granted": 3}, [], (RESIZE, 2, 4), ReasonCode.SIZE_CHANGED),
        ({"finished": True}, [], (RESIZE, 2, 1), ReasonCode.WORKLOAD_GONE),
        ({"suspended": True}, [], (RESIZE, 2, 1), ReasonCode.SUSPENSION_CHANGED),
        ({}, [], (ADMIT, 2, 2), ReasonCode.SUSPENSION_CHANGED),
        ({"suspended": True}, [], (ADMIT, 2, 2), None),
    ],
)
def test_still_valid(job, pods, sent, want):
    workload = dataclasses.replace(JOB, **job)
    snapshot = make_snapshot(make_nodes(4), [*RUNNING, *pods], [workload])
    found = still_valid(command(*sent), snapshot, NOW)
    assert (found.code if found else None) is want


def test_a_workload_that_is_gone_is_not_written():
    found = still_valid(command(RESIZE, 2, 1), make_snapshot(make_nodes(1)), NOW)
    assert found is not None
    assert found.code is ReasonCode.WORKLOAD_GONE


@pytest.mark.parametrize(
    "value", ["WorkloadKey('Job', 'ml', 'a')", "shape_of(make_pod(node_selector={'a': 'b'}))"]
)
def test_what_keeps_its_hash_is_found_again_in_another_process(value):
    """Hashes of text differ from process to process: a kept one must not travel."""
    program = (
        "import pickle, sys; from controlplane.engine.types import WorkloadKey;"
        "from controlplane.engine.shapes import shape_of; from tests.builders import make_pod;"
        f"own = {value};"
    )
    pickled = subprocess.run(
        [sys.executable, "-c", program + "sys.stdout.buffer.write(pickle.dumps(own))"],
        capture_output=True, check=True, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": "1"},
    ).stdout  # fmt: skip
    found = subprocess.run(
        [sys.executable, "-c", program + "print(pickle.load(sys.stdin.buffer) in {own})"],
        input=pickled, capture_output=True, check=True, cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "2"},
    ).stdout  # fmt: skip
    assert found.strip() == b"True"
