"""Pages in a headless browser: Playwright drives the system's Chromium.

A page that is opened collects errors of its scripts. `problems` has what is wrong with
it at once: errors, sideways scrolling, and what axe-core finds to be serious.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Error, Page

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
PHONE, TABLET, DESKTOP = 390, 768, 1280
"""Widths of windows in pixels."""
Scheme = Literal["light", "dark"]

_FOCUSABLE = "a[href], button, input, select, summary, [tabindex='0']"


def find_browser() -> str | None:
    """Return the path of the first browser that is installed."""
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


@dataclass
class OpenPage:
    """A page in a window, with the errors of its scripts so far."""

    page: Page
    errors: list[str] = field(default_factory=list)

    def problems(self) -> list[str]:
        """Return errors, sideways scrolling and findings of axe-core."""
        return [*self.errors, *self.overflow(), *self.barriers()]

    def overflow(self) -> list[str]:
        """Return the elements that make the page scroll sideways, innermost last."""
        found: list[str] = self.page.evaluate(
            """async () => {
              // Scripts that follow the width of the window run in the next frame.
              for (let frame = 0; frame < 2; frame++) await new Promise(requestAnimationFrame);
              const width = document.documentElement.clientWidth;
              if (document.documentElement.scrollWidth <= width) return [];
              const scrolls = (part) => part && part !== document.body &&
                (getComputedStyle(part).overflowX !== "visible" || scrolls(part.parentElement));
              const wide = [...document.body.querySelectorAll("*")].filter((part) =>
                part.getBoundingClientRect().right > width + 0.5 && !scrolls(part.parentElement));
              return wide.map((part) => `wider than ${width}: ` +
                `${part.tagName}.${part.getAttribute("class")} ${part.textContent.slice(0, 40)}`);
            }"""
        )
        return found[:5]

    def barriers(self) -> list[str]:
        """Return the serious and critical findings of axe-core."""
        from axe_playwright_python.sync_playwright import Axe

        found: list[str] = []
        for violation in Axe().run(self.page).response["violations"]:
            if violation["impact"] in ("serious", "critical"):
                for node in violation["nodes"][:3]:
                    found.append(f"{violation['id']}: {node['html'][:300]}")
        return found

    def unreachable(self) -> list[str]:
        """Return the visible controls that Tab does not reach, or without an outline."""
        page = self.page
        wanted: list[str] = page.evaluate(
            """(selector) => {
              const shown = [...document.querySelectorAll(selector)].filter(
                (part) => part.checkVisibility({ visibilityProperty: true }));
              shown.forEach((part, index) => part.dataset.stop = String(index));
              document.activeElement?.blur();
              return shown.map((part) => part.outerHTML.slice(0, 80));
            }""",
            _FOCUSABLE,
        )
        reached: set[int] = set()
        for _ in range(len(wanted)):
            page.keyboard.press("Tab")
            stop, is_marked = page.evaluate(
                """() => {
                  const part = document.activeElement;
                  const style = getComputedStyle(part);
                  const rect = part.querySelector?.("rect, circle");
                  const stroke = rect ? parseFloat(getComputedStyle(rect).strokeWidth) : 0;
                  return [part.dataset?.stop ?? "", style.outlineStyle !== "none" || stroke >= 2];
                }"""
            )
            if stop and is_marked:
                reached.add(int(stop))
        return [part for index, part in enumerate(wanted) if index not in reached]


@dataclass
class Pages:
    """Opens pages in windows of one browser."""

    browser: Browser

    @contextmanager
    def open(
        self, file: Path, *, width: int = DESKTOP, scheme: Scheme = "light"
    ) -> Iterator[OpenPage]:
        context = self.browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            has_touch=width == PHONE,
            reduced_motion="reduce",
            offline=True,
        )
        page = context.new_page()
        opened = OpenPage(page)

        def note(message: ConsoleMessage) -> None:
            if message.type in ("error", "warning"):
                opened.errors.append(f"console: {message.text}")

        def note_error(error: Error) -> None:
            opened.errors.append(f"error: {error.message}")

        page.on("console", note)
        page.on("pageerror", note_error)
        page.set_default_timeout(20_000)
        page.goto(file.as_uri())
        try:
            yield opened
        finally:
            context.close()


@contextmanager
def open_browser() -> Iterator[Pages]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_browser(), args=["--disable-gpu"]
        )
        try:
            yield Pages(browser)
        finally:
            browser.close()
