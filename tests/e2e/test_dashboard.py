"""A person's first minutes: sign in, watch the cluster breathe, kill a replica of the real job, and
see it recover. The whole chain runs: sandbox, loop, site, demo, and real training processes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.e2e.browser import chromium, open_page, sign_in
from tests.stack import ROOT, Stack, wait_until

needs_browser = pytest.mark.skipif(
    chromium() is None, reason="Chromium is not installed (apt-get install chromium)"
)
needs_build = pytest.mark.skipif(
    not (ROOT / "frontend" / "dist" / "manifest.json").exists(),
    reason="the dashboard is not built (make setup)",
)
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.browser,
    pytest.mark.timeout(400),
    needs_browser,
    needs_build,
]

USER, PASSWORD = "demo", "breathe-in-and-out"
JOB = "tiny-llama"
STAGES = ("detect", "abort", "rendezvous", "state restore", "data loader", "first step")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(Path(tmp_path_factory.mktemp("chain")), web=True, demo=True) as running:
        yield running


@pytest.fixture
def page(stack: Stack) -> Iterator[Page]:
    with open_page() as opened:
        sign_in(opened, stack.url, USER, PASSWORD)
        yield opened
        assert opened.problems == []  # type: ignore[attr-defined]


def check_accessible(page: Page) -> None:
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


def job_row(stack: Stack) -> dict:
    query = "select * from training_trainingjob where name = ? and finished_at is null"
    rows = stack.rows(query, JOB)
    return rows[0] if rows else {}


def test_signing_in_is_asked_for_and_refused_with_a_wrong_password(stack: Stack) -> None:
    with open_page() as page:
        page.goto(f"{stack.url}/jobs")
        check_accessible(page)
        page.get_by_label("User name").fill(USER)
        page.get_by_label("Password", exact=True).fill("wrong")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_be_visible()
        expect(page.get_by_role("heading", name="Jobs")).to_have_count(0)


def test_the_live_chart_moves(page: Page) -> None:
    canvas = page.get_by_role("region", name="Who holds what").locator("canvas").first
    canvas.wait_for()
    before = canvas.evaluate("element => element.toDataURL()")
    wait_until(
        lambda: canvas.evaluate("element => element.toDataURL()") != before,
        "the chart to move",
        timeout_s=30,
        every_s=0.25,
    )
    check_accessible(page)


@pytest.mark.parametrize(("link", "heading"), [("Jobs", "Jobs"), ("Decisions", "Decisions")])
def test_pages_are_accessible(page: Page, link: str, heading: str) -> None:
    page.get_by_role("navigation").get_by_role("link", name=link).click()
    page.get_by_role("heading", level=1, name=heading).wait_for()
    check_accessible(page)


def test_a_killed_replica_costs_one_step_and_is_shown(page: Page, stack: Stack) -> None:
    wait_until(lambda: job_row(stack).get("loss"), "the first loss", timeout_s=120)
    wait_until(
        lambda: (job_row(stack).get("productive") or 0) >= 2, "a second replica", timeout_s=120
    )
    attempts = stack.rows("select count(*) as n from training_runattempt")[0]["n"]
    page.get_by_role("navigation").get_by_role("link", name="Jobs").click()
    page.get_by_role("link", name=re.compile(JOB)).click()
    page.get_by_role("heading", level=1, name=re.compile(JOB)).wait_for()
    check_accessible(page)
    before = job_row(stack)

    page.get_by_role("button", name="Inject a fault into replica 0").click()
    page.get_by_role("button", name="Send KILL").click()
    expect(page.get_by_text(re.compile("KILL sent to"))).to_be_visible(timeout=30_000)

    events = page.get_by_role("region", name="List of recovery events")
    expect(events.get_by_text(re.compile("lost")).first).to_be_visible(timeout=60_000)
    for stage in STAGES:
        expect(events.get_by_text(stage).first).to_be_visible()
    wait_until(
        lambda: job_row(stack)["committed_steps"] > before["committed_steps"] + 3,
        "training to go on",
        timeout_s=60,
    )
    same_run = stack.rows("select count(*) as n from training_runattempt")[0]["n"]
    assert same_run == attempts, "the job was restarted"
    check_accessible(page)
