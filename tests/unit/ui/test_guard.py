"""Who may ask the server, from where, how much and for how long."""

from __future__ import annotations

import base64
import os
import socket
import stat
from pathlib import Path

import pytest
from tests import journal_samples, ui_journals
from tests.ui_server_kit import BEARER, TOKEN, Served, chunks, elsewhere, served

from firesteel.errors import UsageError
from firesteel.options import BIND_ADDRESS, Options
from firesteel.ui.server.beside import token_of
from firesteel.ui.server.guard import MOST_BODY
from firesteel.ui.server.serving import Limits, is_any, is_loopback, listen, policy_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("journals")
    ui_journals.write(made, "wc", journal_samples.word_count())
    return made


@pytest.fixture(scope="module")
def server(folder):
    with served([folder]) as running:
        yield running


def test_it_listens_on_this_machine_alone_unless_told():
    address = Options()[BIND_ADDRESS]
    listener = listen(address, range(1))
    listener.close()
    assert is_loopback(address)
    assert not policy_of(address, TOKEN).readers_need_token


@pytest.mark.parametrize("address", ["0.0.0.0", "192.0.2.1", "cluster-node-7", "::"])
def test_at_any_other_address_all_need_the_token(address):
    assert policy_of(address, TOKEN).readers_need_token
    assert is_any(address) == (address in ("0.0.0.0", "::"))


def test_without_the_token_nothing_is_read_at_other_addresses(folder):
    with served([folder], policy=elsewhere()) as running, running.client() as client:
        for path in ("/", "/api/v1/jobs", "/files/ui.css", "/api/v1/jobs/wc/events", "/nothing"):
            refused = client.get(path)
            assert refused.status_code == 401
            assert refused.headers["www-authenticate"].startswith("Basic ")
            assert "word count" not in refused.text
            assert client.get(path, headers={"Authorization": "Bearer wrong"}).status_code == 401
        assert client.get("/api/v1/jobs", headers=BEARER).json()["total"] == 1
        assert client.get("/", auth=("anybody", TOKEN)).status_code == 200
        # any of this machine's addresses is a name of it there
        assert client.get("/", headers={**BEARER, "Host": "192.0.2.1:80"}).status_code == 200
        assert client.get("/", headers={**BEARER, "Host": "rebound.example"}).status_code == 403


@pytest.mark.parametrize(
    "said",
    [
        "",
        "Bearer",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Digest {TOKEN}",
        "Basic !!!",
        "Basic " + base64.b64encode(b"\xff\xfe").decode(),
        "Basic " + base64.b64encode(TOKEN.encode()).decode(),
    ],
)
def test_changes_need_the_token(server: Served, said):
    with server.client() as client:
        for method, path in (("PATCH", "/api/v1/jobs/wc"), ("POST", "/jobs/wc/cancel"), ("PUT", "/api/v1/nothing")):
            assert client.request(method, path, headers={"Authorization": said} if said else {}).status_code == 401


@pytest.mark.parametrize(
    "host", ["rebound.example", "rebound.example:8081", "127.0.0.1.rebound.example", "", "[::", "0"]
)
def test_a_host_that_is_not_the_servers_name_is_refused(server: Served, host):
    answer = server.raw(f"GET /api/v1/jobs HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    assert answer.split(b" ")[1] in (b"403", b"400")
    assert b"word count" not in answer


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:8081", "[::1]:8081"])
def test_its_own_names_are_taken(server: Served, host):
    answer = server.raw(f"GET /api/v1/jobs HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 200")


def test_a_request_without_a_host_is_refused(server: Served):
    assert b"word count" not in server.raw(b"GET /api/v1/jobs HTTP/1.0\r\n\r\n")


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1", "http://[", ""])
def test_pages_of_other_sites_are_refused(server: Served, origin):
    with server.client() as client:
        for method in ("GET", "PATCH"):
            answer = client.request(method, "/api/v1/jobs/wc", headers={"Origin": origin, **BEARER})
            assert answer.status_code == 403
            assert "access-control-allow-origin" not in answer.headers


def test_a_form_of_another_site_is_refused_and_its_own_is_taken(server: Served):
    own = server.url.rstrip("/")
    with server.client() as client:
        crossing = {"Sec-Fetch-Site": "cross-site", **BEARER}
        assert client.post("/jobs/wc/cancel", headers=crossing).status_code == 403
        assert client.post("/jobs/wc/cancel", headers={"Origin": own, **BEARER}).status_code == 409  # it is over
        assert client.get("/jobs/wc", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200  # a link


@pytest.mark.parametrize(
    "path", ["/", "/api/v1/jobs", "/files/ui.js", "/nothing", "/api/v1/jobs/nothing", "/api/v1/docs"]
)
def test_browsers_are_told_to_be_strict(server: Served, path):
    with server.client() as client:
        headers = client.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy and "script-src 'self'" in policy and "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy and "http" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert "server" not in headers


OUTSIDE = ("../secret", "..%2fsecret", "%2e%2e%2fsecret", "..%5csecret", "%00", "/etc/passwd", "secret.jsonl", "linked")


def test_no_path_leads_out_of_the_folders(tmp_path):
    inside = tmp_path / "inside"
    inside.mkdir()
    ui_journals.write(inside, "wc", journal_samples.word_count())
    ui_journals.write(tmp_path, "secret", journal_samples.mirrored())
    (inside / "linked.jsonl").symlink_to(tmp_path / "secret.jsonl")
    with served([inside]) as running, running.client() as client:
        assert [job["id"] for job in client.get("/api/v1/jobs").json()["items"]] == ["wc"]
        for path in (f"{before}/{id}" for id in OUTSIDE for before in ("/api/v1/jobs", "/jobs", "/files")):
            request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            answer = running.raw(request.encode())
            assert answer.split(b" ")[1] == b"404", path
            assert b"FINISHED" not in answer and b"3f2a91c0" not in answer


def test_a_pipe_among_journals_holds_nobody_up(tmp_path):
    os.mkfifo(tmp_path / "20240101-000000_pipe_1.jsonl")
    (tmp_path / "20240101-000000_folder_2.jsonl").mkdir()
    with served([tmp_path]) as running, running.client() as client:
        assert client.get("/api/v1/jobs").json()["total"] == 0


def test_long_bodies_are_refused(server: Served):
    body = b"x" * (MOST_BODY + 1)
    with server.client() as client:
        said = client.put("/api/v1/jobs/wc/resource-requirements", content=body, headers=BEARER)
        assert said.status_code == 413
        chunked = client.put("/api/v1/jobs/wc/resource-requirements", content=iter([body, body]), headers=BEARER)
        assert chunked.status_code == 413
        assert client.get("/api/v1/jobs?text=" + "x" * 10_000).status_code == 414
    answer = server.raw(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 200_000 + b"\r\n\r\n")
    assert answer.split(b" ")[1] in (b"400", b"431")


def test_more_connections_than_there_may_be_are_closed(folder):
    with served([folder], limits=Limits(connections=4)) as running:
        held = [socket.create_connection(("127.0.0.1", running.port), timeout=60.0) for _ in range(4)]
        assert running.raw(b"GET /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\n\r\n") == b""
        for connection in held:
            connection.close()
        with running.client() as client:
            assert client.get("/api/v1/jobs").status_code == 200


@pytest.mark.parametrize("begun", [b"", b"GET / HT", b"GET /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HT"])
def test_a_request_that_does_not_come_is_not_waited_for(folder, begun):
    limits = Limits(head_seconds=0.05, idle_seconds=0.05)
    with (
        served([folder], limits=limits) as running,
        socket.create_connection(("127.0.0.1", running.port)) as connection,
    ):
        connection.sendall(begun)
        b"".join(chunks(connection))  # it ends


def test_a_token_is_made_for_its_owner_alone(tmp_path):
    path = tmp_path / "deep" / "ui-token"
    made = token_of(path)
    assert len(made) >= 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert token_of(path) == made
    assert [each.name for each in path.parent.iterdir()] == ["ui-token"]


def test_a_token_that_others_can_read_or_that_is_none_is_refused(tmp_path):
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    path.chmod(0o644)
    with pytest.raises(UsageError, match="can read"):
        token_of(path)
    path.chmod(0o600)
    assert token_of(path) == TOKEN
    for wrong in ("", "short", "two words that are long enough", "ümläute-sind-keine-token"):
        path.write_text(wrong)
        with pytest.raises(UsageError, match="holds no token"):
            token_of(path)


def test_methods_that_there_are_not_are_refused(server: Served):
    with server.client() as client:
        assert client.request("DELETE", "/api/v1/jobs/wc", headers=BEARER).status_code == 405
        assert client.request("POST", "/api/v1/jobs", headers=BEARER).status_code == 405
        assert client.head("/api/v1/jobs").status_code == 200
