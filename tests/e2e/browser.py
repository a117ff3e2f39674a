"""Debian's Chromium, driven by Playwright, with what it would fetch by itself switched off."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Page, sync_playwright

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


def chromium() -> str | None:
    """Path of the browser; None where there is none."""
    named = os.environ.get("CHROMIUM")
    return named or shutil.which("chromium") or shutil.which("chromium-browser")


@contextmanager
def open_page(width: int = 1440, height: int = 900, **context: Any) -> Iterator[Page]:
    """A page of a new browser. Errors in its console are kept in `page.problems`."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        try:
            view = {"width": width, "height": height}
            page = browser.new_context(viewport=view, **context).new_page()
            page.problems = []  # type: ignore[attr-defined]
            page.on("pageerror", lambda error: page.problems.append(str(error)))
            page.on(
                "console",
                lambda said: page.problems.append(said.text) if said.type == "error" else None,
            )
            yield page
        finally:
            browser.close()


def sign_in(page: Page, url: str, username: str, password: str) -> None:
    """From the sign-in form to the Fleet page."""
    page.goto(url)
    page.get_by_label("User name").fill(username)
    page.get_by_label("Password", exact=True).fill(password)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("heading", level=1, name="Fleet").wait_for()
