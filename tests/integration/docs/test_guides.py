"""What the guides show is true: code runs, manifests are taken, links lead somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from controlplane.supervisor.config import ROOT
from tests.stack import Stack, wait_until

GUIDES = ROOT / "docs" / "guides"
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.e2e
@pytest.mark.timeout(180)
def test_the_automation_guide_runs_and_the_manifests_are_taken(tmp_path: Path) -> None:
    with Stack(tmp_path, web=True, beat=False, policies=()) as stack:
        stack.run("-m", "django", "seed_demo")
        job = yaml.safe_load(blocks(GUIDES / "script-author.md", "yaml")[0])
        priority = yaml.safe_load(blocks(GUIDES / "administrator.md", "yaml")[0])
        stack.create("scheduling.k8s.io/v1", None, "priorityclasses", priority)
        training = {**priority, "metadata": {"name": "training-low"}, "value": 100}
        stack.create("scheduling.k8s.io/v1", None, "priorityclasses", training)
        stack.create("v1", None, "namespaces", {"metadata": {"name": "research"}})
        stack.create("batch/v1", "research", "jobs", job)
        wait_until(
            lambda: stack.items("v1", "research", "secrets"),
            "the Secret with the job's token",
        )
        script = "\n".join(blocks(GUIDES / "automation.md", "python"))
        environment = {**stack.env, "CONCERTINA": stack.url}
        done = subprocess.run(
            [sys.executable, "-c", script],
            cwd=ROOT,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "event: hello"
    assert "nvidia.com/gpu 256" in done.stdout
