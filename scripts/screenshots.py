"""python -m scripts.screenshots URL USER PASSWORD [FOLDER]: the pages as PNG, for docs/images.

Fleet, Jobs, the real job and Decisions, light and dark, 1440 and 390 px wide. Needs Chromium,
Playwright and ImageMagick (`convert`, which makes the files small).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.e2e.browser import open_page, sign_in

ROOT = Path(__file__).resolve().parents[1]
WIDTHS = {1440: 900, 390: 844}
SCHEMES = ("light", "dark")
JOB = "tiny-llama"


def main(url: str, user: str, password: str, folder: str = str(ROOT / "docs" / "images")) -> None:
    to = Path(folder)
    to.mkdir(parents=True, exist_ok=True)
    for width, height in WIDTHS.items():
        for scheme in SCHEMES:
            with open_page(width, height, color_scheme=scheme) as page:
                sign_in(page, url, user, password)
                for name in ("fleet", "jobs", "job", "decisions"):
                    visit(page, url, name)
                    suffix = "" if width == max(WIDTHS) else f"-{width}"
                    save(page, to / f"{name}-{scheme}{suffix}.png")


def visit(page: Page, url: str, name: str) -> None:
    """Open a page and wait until its data is there."""
    page.goto(f"{url}/{'' if name == 'fleet' else 'jobs' if name == 'job' else name}")
    if name == "job":
        page.get_by_role("link", name=JOB).first.click()
    page.get_by_role("heading", level=1).first.wait_for()
    busy = page.locator("[aria-busy=true], .mantine-Skeleton-root")
    expect(busy).to_have_count(0, timeout=15_000)
    page.wait_for_timeout(1500)  # let the live stream draw a little: a picture, not a test


def save(page: Page, path: Path) -> None:
    wide = page.viewport_size is not None and page.viewport_size["width"] == max(WIDTHS)
    page.screenshot(path=str(path), full_page=wide)  # the narrow page's tabs stay at the bottom
    subprocess.run(
        ["convert", str(path), "-strip", "+dither", "-colors", "192", f"PNG8:{path}"], check=True
    )
    print(f"{path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}")


if __name__ == "__main__":
    main(*sys.argv[1:])
