"""The pages: every one that another leads to, of jobs that went well and badly, of streams and scripts; complete, bounded, escaped."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest
from tests import journal_samples, stream_samples
from tests.ui_journals import growing, script, simulated, write
from tests.ui_pages_kit import Checked, matched, render, source_of

from firesteel.errors import UsageError
from firesteel.scheduler.kernel.records import Decision, JobPlanned, JobStatusRecord, RowErrors, StateChange
from firesteel.scheduler.streaming.records import RescaleRecord
from firesteel.ui.catalog.source import Source
from firesteel.ui.pages.pages import FILES, ROUTES, error_page, file
from firesteel.ui.pages.templates import Asked
from firesteel.ui.views.structs import UnknownThing

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
RTL = "\u202egnp.exe\u2066 שלום"
LONG = "x" * 10_000
OUTSIDE = ("http://127.0.0.1:4040",)
LARGEST = 500_000


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("journals")
    write(folder, "wc", journal_samples.word_count())
    write(folder, "wc2", journal_samples.word_count()[:-3])
    write(folder, "mirrors", journal_samples.mirrored())
    write(folder, "sim", simulated(folder / "simulated"))
    write(folder, "words", stream_samples.words())
    write(folder, "script", script())
    return source_of(folder)


def one(folder: Path, records: list) -> Source:
    write(folder, "1", records)
    return source_of(folder)


def test_every_page_that_another_leads_to_is_there_and_well_made(source):
    """A crawl from the list over every link, as a reader without a script goes; of pages that differ in numbers only, one."""
    seen: dict[str, int] = {}
    routes, todo = set(), ["/"]
    while todo:
        address = urlsplit(todo.pop())
        page = urlunsplit(address._replace(fragment=""))
        alike = re.sub(r"\d+", "0", page)
        if (
            page in seen
            or page.startswith(("/api/", *OUTSIDE))
            or any(re.sub(r"\d+", "0", one) == alike for one in seen)
        ):
            continue
        html = render(source, page)
        checked = Checked(html)
        assert checked.headings[0] == 1 and checked.headings.count(1) == 1, page
        assert "content" in checked.ids, page
        seen[page] = len(html)
        routes.add(next(route.path for route in ROUTES if matched(route.path, address.path) is not None))
        todo += [link for link in checked.links if not link.startswith("#")]
    assert routes == {route.path for route in ROUTES}
    assert max(seen.values()) < LARGEST


def test_a_job_tells_its_decisions_its_progress_and_its_graph(source):
    text = Checked(render(source, "/jobs/wc")).text
    for said in (
        "word count",
        "finished",
        "3 of 3 subtasks done",
        "2 source subtasks: 100 MiB in 12 splits over 64 MiB each",
        "by-bytes",
        "3 MiB",
        "hash",
    ):
        assert said in text, said
    assert "worker lost" in text


def test_of_a_job_that_runs_what_is_open_is_told_as_open_and_where_its_events_are(tmp_path, source):
    early = growing(tmp_path, "1", journal_samples.word_count(), written=9)
    try:
        html = render(source_of(tmp_path), "/jobs/1")
    finally:
        early.close()
    assert 'class="card waiting open"' in html and "1 step not decided yet" in Checked(html).text
    assert 'data-events="/api/v1/jobs/1/events"' in html
    assert "data-events" not in render(source, "/jobs/wc")


def test_a_mirror_is_told_with_its_race_and_the_blocked_node(source):
    html = render(source, "/jobs/mirrors/timeline")
    assert 'class="mirror"' in html and 'class="won"' in html and 'class="blocked"' in html
    assert "10.0.0.4" in Checked(html).text
    assert "a mirror" in Checked(render(source, "/jobs/mirrors/vertices/0/subtasks/1")).text


def test_a_failure_shows_the_users_frames(source):
    text = Checked(render(source, "/jobs/wc/failures")).text
    assert "Worker lost" in text and "exit code 137" in text


def test_a_stream_shows_its_rescales_with_their_phases(source):
    text = Checked(render(source, "/jobs/words")).text
    for said in ("2 → 8", "commit barrier 10 ms", "1.9 s", "The sink takes at most 64 partitions", "2→8"):
        assert said in text, said


def test_a_rescale_is_in_the_picture_before_the_first_batch_behind_it(tmp_path):
    records = stream_samples.words()
    grown = next(
        k for k, record in enumerate(records) if isinstance(record, RescaleRecord) and record.end == "completed"
    )
    page = render(one(tmp_path, records[: grown + 1]), "/jobs/1")
    assert "at most 8 partitions" in page and ">2→8<" in page


def test_what_if_shows_both_ways_and_what_is_wrong_with_a_question(source):
    text = Checked(render(source, "/jobs/sim/what-if?data-volume-per-task=1MiB")).text
    assert "Would be" in text and "Beside what was decided" in text
    wrong = Checked(render(source, "/jobs/sim/what-if?data-volume-per-task=purple")).text
    assert "purple" in wrong and "Beside what was decided" not in wrong


@pytest.mark.parametrize(
    "address",
    ["/jobs/none", "/jobs/wc/vertices/99", "/jobs/wc/vertices/x", "/jobs/wc/vertices/0/subtasks/9", "/nothing"],
)
def test_what_is_not_there_is_said_so(source, address):
    with pytest.raises(UnknownThing, match="no "):
        render(source, address)


@pytest.mark.parametrize(
    "address",
    ["/?sort=x", "/?status=x", "/?offset=-1", "/jobs/wc/timeline?from=a", "/jobs/wc/timeline?from=2&to=1", "/jobs/wc/timeline?from=nan",
     "/jobs/wc/vertices/0?sort=x", "/jobs/wc/vertices/0?state=x", "/jobs/words/timeline", "/jobs/words/slots",
     "/jobs/wc/what-if?" + "&".join(f"a{k}=1" for k in range(30))],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_with_a_sentence(source, address):
    with pytest.raises(UsageError) as caught:
        render(source, address)
    Checked(error_page(Asked(), 400, caught.value.message, caught.value.hint or ""))


def hostile(name: str) -> list:
    """A job all of whose texts are this name."""
    plan = JobPlanned(
        at=0.0, job_id="1", job_name=name, vertices=[{"id": 0, "name": name, "inputs": []}, {"id": 1, "name": name, "inputs": [0]}],
        datasets=[{"id": 0, "producer": 0, "ship": name, "keys": [name]}], options={name: name},
        slot_sharing_groups={name: {"cpu_cores": 1.0}},
    )  # fmt: skip
    told = Decision(
        at=1.0,
        what="parallelism",
        vertex=0,
        name=name,
        rule=name,
        bounds=[name],
        inputs={name: name},
        result=1,
        reason=name,
    )
    started = StateChange(at=1.0, vertex=0, state="RUNNING", subtasks=[0], attempts=[0], hosts=[name], nodes=[0])
    failed = StateChange(at=2.0, vertex=0, state="FAILED", subtasks=[0], attempts=[0], cause=f"{name}\n{name}")
    blocked = Decision(
        at=2.0,
        what="blocklist",
        inputs={"node": name, "cause": name, "start": 2.0, "end": 9.0},
        result="blocked",
        reason=name,
    )
    rows = RowErrors(at=2.0, vertex=0, step=name, subtask=0, rows=[name], errors=[name])
    return [plan, told, started, failed, blocked, rows, JobStatusRecord(at=3.0, status="FAILED", cause=name)]


@pytest.mark.parametrize(
    "name", [EVIL, RTL, LONG, "\x1b[31m\x00\n", ""], ids=["script", "rtl", "long", "control", "empty"]
)
def test_names_are_the_users_and_harm_nobody(tmp_path, name):
    source = one(tmp_path, hostile(name))
    for tab in (
        "",
        "/timeline",
        "/decisions",
        "/failures",
        "/slots",
        "/options",
        "/what-if",
        "/vertices/0",
        "/vertices/0/subtasks/0",
    ):
        html = render(source, f"/jobs/1{tab}")
        Checked(html)
        assert "<img" not in html and "<script>" not in html
        assert not re.search("[\u202a-\u202e\u2066-\u2069\x00\x1b]", html)
        assert len(html) < LARGEST, (tab, len(html))
    Checked(render(source, "/"))
    Checked(error_page(Asked(), 404, name, name))


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    folder = tmp_path_factory.mktemp("large")
    return one(
        folder, simulated(folder / "simulated", parallelism=10_000, vertices=2, nodes=100, slots=20, slow_nodes=3)
    )


@pytest.mark.parametrize(
    "tab",
    ["", "/timeline", "/timeline?from=1&to=2", "/decisions", "/failures", "/vertices/1", "/vertices/1?sort=-bytes"],
)
def test_pages_of_ten_thousand_subtasks_are_bounded(large, tab):
    html = render(large, f"/jobs/1{tab}")
    assert len(html) < LARGEST
    assert Checked(html).elements < 6000


def test_behind_a_proxy_all_addresses_have_its_path(source):
    routes = {route.path: route.render for route in ROUTES}
    for path in ("/jobs/{id}", "/jobs/{id}/timeline", "/"):
        html = routes[path](source, Asked({"id": "wc"}, {}, "/proxy/8000"))
        inside = [link for link in Checked(html).links if link.startswith("/")]
        assert inside and all(link.startswith("/proxy/8000/") for link in inside)
        assert 'href="/proxy/8000/files/ui.css"' in html


def test_files_reach_for_no_other_host():
    for name in FILES:
        text = file(name).decode().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?:|//[a-z]+\.|@import|eval\(|innerHTML *=", text), name


def colours(css: str) -> list[dict[str, str]]:
    """The variables of the light and of the dark theme."""
    light, dark = re.findall(r":root \{(.*?)\}", css, re.S)
    first = dict(re.findall(r"--([\w-]+): (#\w{6});", light))
    return [first, {**first, **dict(re.findall(r"--([\w-]+): (#\w{6});", dark))}]


def luminance(colour: str) -> float:
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_colours_have_the_contrast_of_wcag_aa():
    for theme in colours(file("ui.css").decode()):
        for text in (
            "ink",
            "muted",
            "link",
            "accent",
            "waiting",
            "running",
            "finished",
            "failed",
            "cancelled",
            "warning",
        ):
            for ground in ("paper", "surface", "raised"):
                assert contrast(theme[text], theme[ground]) >= 4.5, (
                    text,
                    ground,
                    theme[text],
                    contrast(theme[text], theme[ground]),
                )
        for shape in (
            "fill-running",
            "fill-finished",
            "fill-failed",
            "fill-cancelled",
            "strong-line",
            "mirror",
            "focus",
        ):
            assert contrast(theme[shape], theme["surface"]) >= 3, (shape, contrast(theme[shape], theme["surface"]))
