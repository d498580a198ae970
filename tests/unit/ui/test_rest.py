"""REST over real journals: what is answered, in which form, and what is refused."""

from __future__ import annotations

import io
import json
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests import journal_samples, stream_samples, ui_journals
from tests.ui_server_kit import BEARER, Served, served

from firesteel.journal.file import Journal
from firesteel.report.tables import ATTEMPTS, attempts_table
from firesteel.ui.server import answers, openapi
from firesteel.ui.server.routes import PREFIX, ROUTES

ARROW = {"Accept": answers.STREAM}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("journals")
    ui_journals.write(made, "wc", journal_samples.word_count())
    ui_journals.write(made, "mirrors", journal_samples.mirrored())
    ui_journals.write(made, "stream", stream_samples.words())
    ui_journals.write(made, "script", ui_journals.script())
    sim = ui_journals.simulated(tmp_path_factory.mktemp("aside") / "1.jsonl")
    ui_journals.write(made, "sim", ui_journals.renamed(sim, "daily revenue"))
    (made / "broken.jsonl").write_text("no journal\n")
    return made


@pytest.fixture(scope="module")
def server(folder):
    with served([folder]) as running:
        yield running


@pytest.fixture
def client(server: Served):
    with server.client() as made:
        yield made


def get(client, path, **query):
    answer = client.get(f"{PREFIX}{path}", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def records_of(folder: Path, id: str):
    from firesteel.journal.file import read

    return read(folder / f"{id}.jsonl")


def test_every_route_that_reads_answers_as_its_document_says(client):
    """Each answer is decoded as the type that the table names."""
    fills = {"id": "sim", "vertex": "1", "subtask": "2", "attempt": "0", "other": "wc"}
    for route in (route for route in ROUTES if not route.changes):
        of_streams = "rescales" in route.path or "requirements" in route.path
        path = route.path.format(**{**fills, "id": "stream" if of_streams else "sim"})
        body = client.get(f"{PREFIX}{path}")
        assert body.status_code == 200, (path, body.text)
        assert any(_is_one(kind, body.content) for kind in route.returns), path


def _is_one(kind, body: bytes) -> bool:
    try:
        msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError:
        return False
    return True


def test_the_list_is_filtered_sorted_and_paged(client):
    assert {job["id"] for job in get(client, "/jobs")["items"]} == {
        "wc",
        "mirrors",
        "stream",
        "script",
        "sim",
        "broken",
    }
    assert [job["id"] for job in get(client, "/jobs", status="damaged")["items"]] == ["broken"]
    assert [job["id"] for job in get(client, "/streams")["items"]] == ["stream"]
    assert [job["id"] for job in get(client, "/jobs", kind="script")["items"]] == ["script"]
    assert [job["id"] for job in get(client, "/jobs", text="REVENUE")["items"]] == ["sim"]
    names = [job["name"] for job in get(client, "/jobs", sort="name")["items"]]
    assert names == sorted(names, key=str.casefold)
    seconds = [job["seconds"] for job in get(client, "/jobs", sort="-seconds")["items"]]
    known = [each for each in seconds if each is not None]
    assert known == sorted(known, reverse=True) and seconds[: len(known)] == known
    page = get(client, "/jobs", offset=1, limit=2)
    assert (page["total"], page["offset"], page["limit"], len(page["items"])) == (6, 1, 2, 2)
    assert get(client, "/jobs", offset=100)["items"] == []


def test_a_job_is_told_as_its_report_tells_it(client, folder):
    job = get(client, "/jobs/sim")
    table = attempts_table(records_of(folder, "sim")).to_pylist()
    assert job["status"] == "FINISHED" and job["progress"] == 1.0
    assert sum(vertex["failures"] for vertex in job["vertices"]) == sum(row["state"] == "FAILED" for row in table)
    for vertex in job["vertices"]:
        assert vertex["finished"] == vertex["parallelism"] > 0
        own = [row for row in table if row["vertex"] == vertex["id"]]
        assert vertex["mirrors"] == sum(row["mirror"] and row["cause"] != "rejected by a blocked node" for row in own)
    assert [(edge["producer"], edge["consumer"]) for edge in job["edges"]] == [(0, 1), (1, 2), (2, 3)]
    assert all(edge["ship"] == "hash" and edge["bytes"] > 0 for edge in job["edges"])


def test_attempts_are_those_of_the_report(client, folder):
    """All pages together, as Arrow and as JSON, row by row."""
    expected = attempts_table(records_of(folder, "sim"))
    found, offset = [], 0
    while True:
        page = get(client, "/jobs/sim/attempts", offset=offset, limit=100)
        found += page["items"]
        offset += len(page["items"])
        if offset >= page["total"]:
            break
    assert len(found) == expected.num_rows
    began = min(record.at for record in records_of(folder, "sim"))
    names = {"deployed": "began"}
    for own, row in zip(found, expected.to_pylist(), strict=True):
        for column in ATTEMPTS.names:
            value = own[names.get(column, column)]
            wanted = row[column]
            if isinstance(wanted, float) and column != "seconds":
                wanted -= began
            assert value == (pytest.approx(wanted) if isinstance(wanted, float) else wanted or type(value)()), column


@pytest.mark.parametrize("media", answers.TABLES)
def test_tables_come_as_arrow_and_parquet(client, media):
    for path, limit in (("/jobs", 3), ("/jobs/sim/decisions", 50), ("/jobs/sim/vertices/1/subtasktimes", 1000)):
        rows = get(client, path, limit=limit)["items"]
        answer = client.get(f"{PREFIX}{path}", params={"limit": limit}, headers={"Accept": media})
        assert answer.headers["content-type"] == media
        assert int(answer.headers["x-total-count"]) >= len(rows) == table(media, answer.content).num_rows
        for row, wanted in zip(table(media, answer.content).to_pylist(), rows, strict=True):
            for name, value in wanted.items():
                assert (json.loads(row[name]) if isinstance(value, dict) else row[name]) == value or name == "result"


def table(media: str, body: bytes) -> pa.Table:
    source = io.BytesIO(body)
    match media:
        case answers.PARQUET:
            return pq.read_table(source)
        case answers.STREAM:
            return pa.ipc.open_stream(source).read_all()
        case _:
            return pa.ipc.open_file(source).read_all()


def test_what_is_not_offered_is_not_given(client):
    assert client.get(f"{PREFIX}/jobs", headers={"Accept": "text/csv"}).status_code == 406
    assert client.get(f"{PREFIX}/jobs/sim", headers=ARROW).status_code == 406
    liked = "text/csv, application/json;q=0.1, application/vnd.apache.parquet;q=0.2"
    assert client.get(f"{PREFIX}/jobs", headers={"Accept": liked}).headers["content-type"] == answers.PARQUET
    assert client.get(f"{PREFIX}/jobs", headers={"Accept": ""}).headers["content-type"] == answers.JSON


def test_an_answer_that_is_known_is_not_sent_again(client):
    first = client.get(f"{PREFIX}/jobs/sim/decisions")
    again = client.get(f"{PREFIX}/jobs/sim/decisions", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
    other = client.get(f"{PREFIX}/jobs/sim/decisions", headers={**ARROW, "If-None-Match": first.headers["etag"]})
    assert other.status_code == 200 and other.headers["etag"] != first.headers["etag"]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/jobs/nothing", 404),
        ("/jobs/sim/vertices/99", 404),
        ("/jobs/sim/vertices/-1", 404),
        ("/jobs/sim/vertices/x", 404),
        ("/jobs/sim/vertices/1/subtasks/1000000", 404),
        ("/jobs/sim/vertices/1/subtasks/99999999999999999999", 404),
        ("/jobs/sim/vertices/1/subtasks/0/attempts/77", 404),
        ("/jobs/sim/rescales", 404),
        ("/jobs/stream/vertices", 404),
        ("/jobs/script/timeline", 404),
        ("/jobs/broken", 400),
        ("/jobs?sort=nothing", 400),
        ("/jobs?status=nothing", 400),
        ("/jobs?kind=nothing", 400),
        ("/jobs?limit=-1", 400),
        ("/jobs?limit=1e3", 400),
        ("/jobs?offset=%C2%B2", 400),
        ("/jobs?typo=1", 400),
        ("/jobs/sim/timeline?begin=nan", 400),
        ("/jobs/sim/timeline?vertex=77", 404),
        ("/jobs/sim/vertices/1/subtasktimes?state=nothing", 400),
        ("/jobs/sim/vertices/1/subtasktimes?sort=__class__", 400),
        ("/jobs?" + "&".join(f"a{n}=1" for n in range(100)), 400),
    ],
)
def test_what_makes_no_sense_is_said_in_a_sentence(client, path, status):
    answer = client.get(f"{PREFIX}{path}")
    assert answer.status_code == status
    said = answer.json()
    assert (said["error"].endswith(".") and said["error"][0].isupper()) or said["error"].startswith("'")
    assert "Traceback" not in answer.text


def test_no_page_is_longer_than_a_thousand(client):
    page = get(client, "/jobs/sim/attempts", limit=10**9)
    assert page["limit"] == 1000


def test_what_if_shows_other_decisions_beside_the_real_ones(client):
    asked = get(client, "/jobs/sim/what-if")
    assert asked["vertices"] == [] and asked["choices"]
    again = get(client, "/jobs/sim/what-if", **{"data-volume-per-task": "1 KiB"})
    assert again["vertices"] and again["values"] == {"data-volume-per-task": "1 KiB"}
    assert all(vertex["would_be"]["parallelism"] > 0 for vertex in again["vertices"] if vertex["would_be"])


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("nonsense", "1", "There is no option 'nonsense'. There are: adaptive, "),
        ("data-volume-per-task", "purple", "'purple' is not a size such as '64 MiB', '1 GiB' or a number of bytes."),
        ("firesteel.decider.cut", "by-luck", "'by-luck' is not one of by-bytes, by-count."),
        ("max-parallelism", "0", "'0' must be at least 1."),
        ("parallelism", "many", "'many' is not a whole number of at least 1."),
        ("firesteel.progress", "true", "has no part in this decision. What has: adaptive, "),
    ],
)
def test_what_if_refuses_values_that_cannot_be_and_says_which_can(client, name, value, said):
    answer = client.get(f"{PREFIX}/jobs/sim/what-if", params={name: value})
    assert answer.status_code == 400
    wrong = answer.json()
    assert said in " ".join(filter(None, [wrong["error"], wrong["hint"]]))


def test_two_jobs_are_set_side_by_side(client):
    both = get(client, "/jobs/sim/compare/wc")
    assert (both["left"]["id"], both["right"]["id"]) == ("wc", "sim")
    assert both["notes"][0].startswith("It took ") and both["options"]
    same = get(client, "/jobs/sim/compare/sim")
    assert [vertex["seconds_more"] for vertex in same["vertices"]] == [0.0] * 4
    assert same["notes"][0].startswith("Both took about as long") and same["options"] == []


def test_changes_of_what_has_ended_conflict(client):
    for method, path in (
        ("PATCH", "/jobs/sim"), ("POST", "/jobs/stream/stop"), ("PATCH", "/jobs/stream/rescaling?parallelism=4"),
    ):  # fmt: skip
        answer = client.request(method, f"{PREFIX}{path}", headers=BEARER)
        assert answer.status_code == 409 and "does not run" in answer.json()["error"]
    bounds = client.put(f"{PREFIX}/jobs/stream/resource-requirements", json={"lower": 1}, headers=BEARER)
    assert bounds.status_code == 409


@pytest.mark.parametrize(
    "body", [b"[1]", b"{", b'{"lower": "x"}', b'{"lower": -1}', b'{"lower": true}', b'{"other": 1}', b"{}"]
)
def test_bodies_that_make_no_sense_are_refused(client, body):
    answer = client.put(f"{PREFIX}/jobs/stream/resource-requirements", content=body, headers=BEARER)
    assert answer.status_code == 400


def test_the_document_names_every_route(client):
    document = client.get(f"{PREFIX}/openapi.json").json()
    assert document["openapi"].startswith("3.")
    for route in ROUTES:
        operation = document["paths"][route.path][route.method.lower()]
        assert operation["summary"] == route.doc
        assert ("security" in operation) == route.changes
        names = {each["name"] for each in operation["parameters"] if each["in"] == "path"}
        assert names == {part[1:-1] for part in route.path.split("/") if part.startswith("{")}
    _all_references_lead_somewhere(document, document["components"]["schemas"])
    page = client.get(f"{PREFIX}/docs").text
    assert all(route.path in page for route in ROUTES)


def _all_references_lead_somewhere(part, schemas):
    if isinstance(part, dict):
        reference = part.get("$ref")
        if isinstance(reference, str):
            assert reference.removeprefix("#/components/schemas/") in schemas
        for each in part.values():
            _all_references_lead_somewhere(each, schemas)
    elif isinstance(part, list):
        for each in part:
            _all_references_lead_somewhere(each, schemas)


def test_operations_have_names_of_their_own():
    names = [
        operation["operationId"]
        for path in json.loads(openapi.document())["paths"].values()
        for operation in path.values()
    ]
    assert len(names) == len(set(names))


def test_two_journals_of_one_job_are_told_apart(tmp_path):
    """As a job has that went on under another driver."""
    for name in ("20240101-000000_wc_one.jsonl", "20240102-000000_wc_one.jsonl"):
        journal = Journal(tmp_path / name)
        for record in journal_samples.word_count():
            journal.record(record)
        journal.close()
    with served([tmp_path]) as running, running.client() as client:
        newer, older = get(client, "/jobs")["items"]
        assert newer["id"] == "3f2a91c0" != older["id"]
        assert newer["began"] > older["began"]
        assert get(client, f"/jobs/{older['id']}")["summary"]["journal"] == "20240101-000000_wc_one.jsonl"
