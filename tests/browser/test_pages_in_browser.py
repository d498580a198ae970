"""The pages in a real Chromium: every one opened at three widths, light and dark, looked through by axe-core, kept up to date while a job
runs. They run with --all where there is a Chromium. BROWSER_PICTURES names a folder that keeps the screenshots, and
has those of the documents taken anew."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from tests import journal_samples
from tests.browser.kit import served
from tests.ui_journals import fill, growing, renamed, simulated, write
from tests.unit.ui.test_pages import EVIL, hostile

axe = pytest.importorskip("axe_playwright_python.sync_playwright")
pytestmark = [pytest.mark.browser, pytest.mark.full]

ROOT = Path(__file__).parents[2]
SIZES = {320: 700, 1280: 860, 3840: 2100}
"""Width to height, CSS pixels."""
PAGES = {
    "jobs": "/", "job": "/jobs/sim", "vertex": "/jobs/sim/vertices/2", "subtask": "/jobs/sim/vertices/1/subtasks/3",
    "timeline": "/jobs/sim/timeline", "mirrors": "/jobs/mirrors/timeline", "decisions": "/jobs/sim/decisions", "failures": "/jobs/sim/failures",
    "slots": "/jobs/groups/slots", "options": "/jobs/sim/options", "what-if": "/jobs/sim/what-if?data-volume-per-task=64MiB",
    "stream": "/jobs/stream", "script": "/jobs/script", "compare": "/compare?left=other&right=sim", "crowd": "/jobs/large/timeline",
    "crowd-vertex": "/jobs/large/vertices/1", "crowd-slots": "/jobs/large/slots", "rest": "/api/v1/docs",
    "missing": "/jobs/nothing",
}  # fmt: skip
"""Name of the picture to address."""
DOCUMENTS = {"timeline": "/jobs/sim/timeline", "stream": "/jobs/stream"}
"""The pictures of the documents that a simulation gives. That of a real job is taken by tools/picture.py."""
PICTURES = os.environ.get("BROWSER_PICTURES", "")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The address of a server over journals of all kinds."""
    folder = tmp_path_factory.mktemp("journals")
    fill(folder)
    with served(folder) as address:
        yield address


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", SIZES)
def test_every_page_fits_and_can_be_read_by_all(site, opened, width, scheme):
    page = opened(viewport={"width": width, "height": SIZES[width]}, color_scheme=scheme, reduced_motion="reduce")
    for name, path in PAGES.items():
        page.goto(site + path)
        page.wait_for_load_state("load")
        if PICTURES:
            page.screenshot(path=Path(PICTURES) / f"{name}-{width}-{scheme}.png", full_page=True)
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, f"{path} is {wide} px too wide for {width}"
        if width > 2000:
            continue  # the same rules by which axe-core judges a page of 1,280 px
        found = axe.Axe().run(page).response["violations"]
        serious = [
            (one["id"], one["nodes"][0]["html"][:200], one["nodes"][0].get("failureSummary"))
            for one in found
            if one["impact"] in ("serious", "critical", "moderate")
        ]
        assert not serious, (path, serious)


def test_the_keyboard_reaches_what_the_pointer_does(site, opened):
    page = opened(viewport={"width": 1280, "height": 900})
    page.goto(f"{site}/jobs/sim")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.closest('svg') !== null"):
            break
    page.keyboard.press("Enter")
    page.wait_for_url("**/vertices/0")


def test_without_javascript_all_is_there(site, opened):
    with_script, without = opened(timezone_id="UTC"), opened(java_script_enabled=False)
    for path in ("/", "/jobs/sim", "/jobs/sim/vertices/2", "/jobs/stream"):
        for page in (with_script, without):
            page.goto(site + path)
        visible = [page.locator("main").inner_text() for page in (with_script, without)]
        assert len(visible[1]) > 200 and abs(len(visible[0]) - len(visible[1])) < 100
    without.goto(f"{site}/")
    without.fill("#text", "revenue")
    without.click("button.main")
    assert (
        "daily revenue" in without.locator("tbody").inner_text()
        and "clicks" not in without.locator("tbody").inner_text()
    )
    without.click("thead >> text=Took")
    assert without.locator("th[aria-sort=descending]").inner_text().startswith("Took")


def test_times_are_in_the_readers_zone(site, opened):
    here, there = (opened(timezone_id=zone, locale="en-GB") for zone in ("Asia/Tokyo", "America/Lima"))
    told = []
    for page in (here, there):
        page.goto(f"{site}/")
        time = page.locator("time").first
        told.append(time.inner_text())
        assert time.get_attribute("datetime").endswith("Z") and "UTC" not in told[-1]
    assert told[0] != told[1]


def test_a_page_follows_its_job_and_keeps_what_its_reader_has_done(tmp_path, opened):
    records = renamed(simulated(tmp_path / "whole.jsonl"), "live job")
    (tmp_path / "journals").mkdir()
    grows = growing(tmp_path / "journals", "live", records, len(records) // 4)
    try:
        with served(tmp_path / "journals") as address:
            page = opened(viewport={"width": 1280, "height": 900})
            page.goto(f"{address}/jobs/live")
            page.locator(".live >> text=Pause").wait_for()
            page.evaluate("window.same = true")
            link = page.locator("#body table tbody a").first
            link.focus()
            before = page.locator("#head").inner_text()
            grows.go_on(len(records) // 2)
            page.wait_for_function("before => document.getElementById('head').innerText !== before", arg=before)
            assert page.evaluate("document.activeElement.closest('tbody') !== null"), "the focus stays"
            page.click(".live >> text=Pause")
            page.locator(".live >> text=Paused").wait_for()
            paused = page.locator("main").inner_text()
            grows.go_on()
            grows.close()
            page.wait_for_timeout(1500)
            assert page.locator("main").inner_text() == paused
            page.click(".live >> text=Go on")
            page.locator(".pill >> text=finished").wait_for()
            assert page.evaluate("window.same"), "it was never loaded anew"
    finally:
        grows.close()


def test_the_list_follows_what_is_new(tmp_path, opened):
    with served(tmp_path) as address:
        page = opened()
        page.goto(address)
        assert "Nothing has run yet" in page.locator("main").inner_text()
        write(tmp_path, "new", renamed(simulated(tmp_path / "aside"), "a new job"))
        page.locator("text=a new job").wait_for()


def test_a_history_of_two_thousand_journals_is_turned_sorted_searched_and_followed(tmp_path, opened):
    write(tmp_path, "3f2a91c0", journal_samples.word_count())
    pattern = (tmp_path / "3f2a91c0.jsonl").read_bytes()
    (tmp_path / "3f2a91c0.jsonl").unlink()

    def add(number: int) -> None:
        id = f"{number:08x}".encode()
        began = time.strftime("%Y%m%d-%H%M%S", time.gmtime(1.7e9 + 60 * number))
        journal = pattern.replace(b"3f2a91c0", id).replace(b"word count", b"words %d" % number)
        (tmp_path / f"{began}_words_{id.decode()}.jsonl").write_bytes(journal)

    for number in range(2000):
        add(number)
    with served(tmp_path) as address:
        page = opened(viewport={"width": 1280, "height": 900})
        page.goto(address)
        first = page.locator("tbody tr th").first
        assert "1 to 50 of 2,000" in page.locator(".pages").inner_text() and first.inner_text() == "words 1999"
        page.click("text=Last")
        assert "1,951 to 2,000 of 2,000" in page.locator(".pages").inner_text()
        page.click("text=Previous")
        assert "1,901 to 1,950" in page.locator(".pages").inner_text()
        page.goto(address)
        page.click("thead >> text=Began")
        assert first.inner_text() == "words 0"
        page.fill("#text", "words 77")
        page.click("button.main")
        assert page.locator("tbody tr").count() == 11 and page.locator("th[aria-sort=ascending]").count() == 1
        page.goto(address)
        add(2000)
        page.locator("tbody >> text=words 2000").wait_for()
        page.click("tbody >> text=words 2000")
        page.locator("h1 >> text=words 2000").wait_for()


def test_hostile_names_do_nothing(tmp_path, opened):
    write(tmp_path, "1", hostile(EVIL))
    with served(tmp_path) as address:
        page = opened()
        for path in (
            "/",
            "/jobs/1",
            "/jobs/1/decisions",
            "/jobs/1/failures",
            "/jobs/1/timeline",
            "/jobs/1/options",
            "/jobs/1/vertices/0",
        ):
            page.goto(address + path)
            assert EVIL in page.locator("main").inner_text() or path.endswith("timeline")
            assert page.locator("main img, main script").count() == 0


def test_a_page_of_ten_thousand_subtasks_is_there_at_once(site, opened):
    page = opened(viewport={"width": 1280, "height": 900})
    for path in ("/jobs/large", "/jobs/large/timeline", "/jobs/large/vertices/1", "/jobs/large/slots"):
        page.goto(site + path)
        timing = page.evaluate(
            "(({responseEnd, loadEventEnd, transferSize}) => ({responseEnd, loadEventEnd, transferSize}))(performance.getEntriesByType('navigation')[0])"
        )
        assert timing["transferSize"] < 500_000
        assert page.evaluate("document.querySelectorAll('*').length") < 6000


def test_the_pictures_of_the_documents(site, opened, tmp_path):
    page = opened(viewport={"width": 1280, "height": 720}, timezone_id="UTC", locale="en-GB", color_scheme="light")
    folder = ROOT / "docs" / "pictures" if PICTURES else tmp_path
    for name, path in DOCUMENTS.items():
        page.goto(site + path)
        taken = page.screenshot(path=folder / f"{name}.png")
        assert 20_000 < len(taken) < 200_000, len(taken)
        assert (ROOT / "docs" / "pictures" / f"{name}.png").is_file()
