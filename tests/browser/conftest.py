"""A Chromium, and tabs in it that let nothing pass that a reader would not want."""

from __future__ import annotations

import shutil

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

PATIENCE = 300_000
"""Milliseconds; nothing that a page shows takes so long."""


@pytest.fixture(scope="session")
def browser():
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="Playwright is not installed: the pages are not tried in a browser."
    )
    if CHROMIUM is None:
        pytest.skip(
            "There is no Chromium on this machine: the pages are not tried in a browser. On Debian and Ubuntu: apt install chromium."
        )
    with sync_api.sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--force-color-profile=srgb"])
        yield made
        made.close()


@pytest.fixture
def opened(browser):
    """Makes a tab. Whatever a page says in its console, asks of another host, or raises, fails the test at its end."""
    contexts, wrong = [], []

    def make(**how):
        context = browser.new_context(**how)
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
        page.on(
            "request",
            lambda asked: (
                wrong.append(asked.url) if not asked.url.startswith(("http://127.0.0.1:", "about:")) else None
            ),
        )
        return page

    yield make
    for context in contexts:
        context.close()
    expected = [text for text in wrong if "404 (Not Found)" in text or "net::ERR_" in text]  # the server has ended
    assert wrong == expected
