"""`llc ui`: a real server on loopback with real connections, and its page in a browser."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from accessibility import violations
from browser import Browser, browser_program
from in_process import run_llc

from llc.runtime.ui.watch import Watch

# Timeout of all waits, in seconds.
TIMEOUT_S = 120
HOSTILE = "<img src=x onerror=window.bad=1> </script><script>window.bad=1</script> ${x} \u202e"
LOOP = """
name: asks
initial: show
states:
  show: {action: "cat text", next: wait}
  wait:
    action_type: ask
    action: "Go on <b onclick=window.bad=1>?</b>"
    choices: [go, no]
    on_go: again
    on_no: done
  again: {action: "echo answered; cat text", next: hold}
  hold: {action_type: ask, action: "What then?", next: done}
  done: {terminal: true}
"""


class Server:
    """A server in its own process. address: the printed address."""

    def __init__(self, *options: str, **variables: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "llc", "ui", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **variables},
        )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        base, _, self.token = self.address.partition("/#token=")
        self.port = int(base.rpartition(":")[2] or 0)

    def request(
        self, method: str, path: str, body: Any = None, token: str | None = "", **headers: str
    ) -> tuple[int, bytes, dict[str, str]]:
        """Status, body and headers of a response. token: None for none."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        sent = {"Host": f"127.0.0.1:{self.port}", "Content-Type": "application/json"}
        if token is not None:
            sent["Authorization"] = f"Bearer {token or self.token}"
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        data = b"" if body is None else json.dumps(body).encode()
        for name, value in {**sent, "Content-Length": str(len(data))}.items():
            connection.putheader(name, value)
        connection.endheaders(data)
        response = connection.getresponse()
        result = response.status, response.read(), {k.lower(): v for k, v in response.getheaders()}
        connection.close()
        return result

    def data(self, path: str) -> Any:
        status, body, _ = self.request("GET", path)
        assert status == 200, body
        return json.loads(body)


def wait_for(condition: Callable[[], Any]) -> Any:
    """Wait until the condition returns a true value; returns that value."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError("the condition did not become true")


@pytest.fixture
def server(project_dir: Path) -> Iterator[Server]:
    (project_dir / ".loops" / "asks.yaml").write_text(LOOP)
    (project_dir / "text").write_text(HOSTILE + "\n")
    server = Server()
    yield server
    run_llc("stop", "--all")
    server.process.kill()
    server.process.communicate()


@pytest.fixture
def run(server: Server) -> str:
    """A run in the background that waits for an answer."""
    command = [sys.executable, "-m", "llc", "run", "asks", "--background"]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    wait_for(lambda: server.data("/api/questions"))
    name: str = server.data("/api/runs")["running"][0]["run"]
    return name


def test_open_does_not_pass_the_token_as_an_argument(project_dir: Path) -> None:
    """`--open` passes the browser a private file that redirects to the address, and removes it at the end."""
    browser = project_dir / "browser"
    browser.write_text(
        f'#!/bin/sh\nstat -c %a "$1" > {project_dir}/mode\n'
        f'cp "$1" {project_dir}/entrance\necho "$1" > {project_dir}/asked\n'
    )
    browser.chmod(0o755)
    server = Server("--open", BROWSER=str(browser))
    try:
        asked = wait_for(
            lambda: (project_dir / "asked").exists() and (project_dir / "asked").read_text().strip()
        )
        assert server.token not in asked
        assert (project_dir / "mode").read_text() == "600\n"
        assert server.address in (project_dir / "entrance").read_text()
    finally:
        server.process.send_signal(signal.SIGINT)
        server.process.communicate()
    assert not Path(asked).exists()


def test_without_a_browser_the_page_is_served(project_dir: Path) -> None:
    server = Server("--open", BROWSER=str(project_dir / "none"))
    try:
        assert server.request("GET", "/api/runs")[0] == 200
    finally:
        server.process.send_signal(signal.SIGINT)
        _, errors = server.process.communicate()
    assert "could not be started" in errors
    assert "open the address in a browser" in errors


def test_requests_without_the_token_are_refused(server: Server) -> None:
    """Also with a wrong token, at every address; the public page has no data."""
    for path in ("/api/runs", "/api/budget", "/runs/x", "/loops/asks", "/nowhere"):
        for token in (None, "wrong", server.token[:-1], server.token + "x", "é"):
            assert server.request("GET", path, token=token)[0] == 401
    assert server.request("POST", "/session", token=None)[0] == 401
    assert server.request("POST", "/api/runs/x/stop", token=None)[0] == 401
    status, page, headers = server.request("GET", "/", token=None)
    assert status == 200
    assert b"asks.yaml" not in page
    assert server.token.encode() not in page
    assert "default-src 'none'" in headers["content-security-policy"]
    assert headers["x-frame-options"] == "DENY"


def test_the_token_is_exchanged_for_a_cookie(server: Server) -> None:
    """Scripts cannot read the cookie, other sites do not send it, and it differs from the token."""
    status, _, headers = server.request("POST", "/session")
    assert status == 204
    cookie, *attributes = headers["set-cookie"].split("; ")
    assert {"HttpOnly", "SameSite=Strict"} <= set(attributes)
    assert server.token not in cookie
    assert server.request("GET", "/api/runs", token=None, Cookie=cookie)[0] == 200
    assert server.request("GET", "/api/runs", token=None, Cookie=cookie + "x")[0] == 401
    # A request that changes something needs an Origin header too.
    origin = f"http://127.0.0.1:{server.port}"
    assert server.request("POST", "/api/runs/x/stop", {}, None, Cookie=cookie)[0] == 403
    assert server.request("POST", "/api/runs/x/stop", {}, None, Cookie=cookie, Origin=origin)[0] == 404


def test_requests_of_other_sites_are_refused(server: Server) -> None:
    """By the Host, Origin and Sec-Fetch-Site headers."""
    for host in ("evil.example", f"evil.example:{server.port}", "127.0.0.1", f"127.0.0.1:{server.port}.evil"):
        assert server.request("GET", "/api/runs", Host=host)[0] == 421
        assert server.request("GET", "/", Host=host)[0] == 421
    assert server.request("GET", "/api/runs", Host=f"localhost:{server.port}")[0] == 200
    for origin in ("http://evil.example", "null", f"https://127.0.0.1:{server.port}", "http://127.0.0.1:1"):
        assert server.request("GET", "/api/runs", Origin=origin)[0] == 403
        assert server.request("POST", "/api/runs/x/stop", {}, Origin=origin)[0] == 403
    status, refused, _ = server.request("GET", "/api/runs", Sec_Fetch_Site="cross-site")
    assert (status, json.loads(refused)["error"]["id"]) == (403, "not-permitted")
    assert server.request("GET", "/api/runs", Sec_Fetch_Site="same-site")[0] == 403
    assert server.request("POST", "/api/runs", {})[0] == 405


NAMES = ("..", "%2e%2e", "..%2f..%2ftext", "%00", "asks%00", "text", ".loops", "asks", "%ff", "x" * 5000)


@pytest.mark.parametrize(
    "prefix", ["/runs/", "/api/runs/", "/loops/", "/", "//", "/assets/", "/api/runs/../"]
)
def test_no_path_leads_to_a_file(server: Server, prefix: str) -> None:
    """Only ids of runs and names of listed loops are valid."""
    for name in NAMES:
        if (prefix, name) == ("/loops/", "asks"):
            continue
        status, body, _ = server.request("GET", prefix + name)
        assert status == 404, (prefix, name, status, body)
        assert b"img src" not in body
        assert b"Traceback" not in body


def test_invalid_bodies_are_refused(server: Server, run: str) -> None:
    """They change nothing and cause no server error."""
    path = f"/api/runs/{run}/answer"
    for body in ([], {}, {"question": 1}, {"question": "2", "answer": 5}, {"answer": "go"}, "go", None):
        assert server.request("POST", path, body)[0] in (400, 409)
    assert server.request("POST", path, {"answer": "x" * (2 << 20)})[0] == 400
    assert server.request("POST", path, {"question": 2, "answer": "go"}, Content_Type="text/plain")[0] == 400
    assert len(server.data("/api/questions")) == 1


def test_a_run_is_followed_answered_and_stopped(server: Server, run: str) -> None:
    """Updates arrive as events; a question is answered once; the run ends when it is stopped."""
    model = server.data(f"/api/runs/{run}/model")
    assert model["run"]["status"] == "running"
    page = server.request("GET", f"/runs/{run}")[1].decode()
    assert "<img src=x" not in page
    version = json.loads(page.partition('id="head">')[2].partition("</script>")[0])["live"]["version"]
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=TIMEOUT_S)
    bearer = {"Authorization": f"Bearer {server.token}"}
    connection.request("GET", f"/api/runs/{run}/events?from={version}", headers=bearer)
    response = connection.getresponse()
    assert response.headers["content-type"].startswith("text/event-stream")
    question = server.data("/api/questions")[0]
    assert question["run"] == run
    fields = {"question": question["question"], "text": "another text", "answer": "go"}
    assert server.request("POST", f"/api/runs/{run}/answer", fields)[0] == 409
    fields["text"] = question["text"]
    assert server.request("POST", f"/api/runs/{run}/answer", {**fields, "answer": "perhaps"})[0] == 400
    status, body, _ = server.request("POST", f"/api/runs/{run}/answer", fields)
    assert (status, json.loads(body)["answer"]) == (200, "go")
    shown = b""
    while b"answered" not in shown:
        line = response.readline()
        assert line, "the stream has ended"
        shown += line
    wait_for(lambda: [one for one in server.data("/api/questions") if one["text"] == "What then?"])
    assert server.request("POST", f"/api/runs/{run}/stop", {})[0] == 202
    wait_for(lambda: server.data(f"/api/runs/{run}")["status"] == "interrupted")
    while b"event: end" not in shown:
        line = response.readline()
        assert line
        shown += line
    connection.close()
    assert server.request("POST", f"/api/runs/{run}/stop", {})[0] == 409


def test_updates_add_up_to_the_complete_run(server: Server, run: str) -> None:
    """A viewer that applied each update has the same steps as a later viewer."""
    old = server.data(f"/api/runs/{run}/model")
    page = server.request("GET", f"/runs/{run}")[1].decode()
    version = json.loads(page.partition('id="head">')[2].partition("</script>")[0])["live"]["version"]
    question = server.data("/api/questions")[0]
    fields = {"question": question["question"], "answer": "no"}
    assert server.request("POST", f"/api/runs/{run}/answer", fields)[0] == 200
    wait_for(lambda: server.data(f"/api/runs/{run}")["status"] == "success")
    complete = wait_for(lambda: (data := server.data(f"/api/runs/{run}/model"))["run"]["ended"] and data)
    body = server.request("GET", f"/api/runs/{run}/events?from={version}")[1].decode()
    steps, values, drawn = old["steps"], old["values"], ""
    for line in body.splitlines():
        if line.startswith('data: {"'):
            update = json.loads(line.removeprefix("data: "))
            steps[update["from"] :] = update["steps"]
            values[update["first_value"] :] = update["values"]
            drawn = update.get("svg", drawn)
    assert drawn == complete["program"]["svg"]
    assert drawn.count("unused") == old["program"]["svg"].count("unused") - 1  # `done` is entered now
    assert body.endswith("event: end\ndata: {}\n\n")
    assert steps == complete["steps"]
    assert values == complete["values"]
    ended = server.data("/api/runs")["ended"]
    assert [(row["run"], row["status"]) for row in ended] == [(run, "success")]
    tag = server.request("GET", "/api/runs")[2]["etag"]
    assert server.request("GET", "/api/runs", If_None_Match=tag)[0] == 304


def answer(server: Server, run: str, text: str) -> None:
    (question,) = [one for one in server.data("/api/questions") if one["run"] == run]
    fields = {"question": question["question"], "answer": text}
    assert server.request("POST", f"/api/runs/{run}/answer", fields)[0] == 200


def test_viewers_of_a_run_share_one_poll() -> None:
    """One poll at intervals wakes all viewers when the version changes."""
    looks = []

    async def look() -> int:
        looks.append(len(looks))
        return len(looks) // 5

    async def view() -> int:
        watch = Watch(look, lambda: False)
        versions = await asyncio.gather(*(watch.wait_for_change(0, TIMEOUT_S) for _ in range(50)))
        watch.close()
        return sum(versions)

    assert asyncio.run(view()) == 50
    assert len(looks) < 10


def test_a_run_is_resumed_and_forked(server: Server, run: str) -> None:
    """Both run in the background and survive the server; an impossible request is refused with help."""
    status, body, _ = server.request("POST", f"/api/runs/{run}/resume", {})
    assert (status, json.loads(body)["error"]["id"]) == (409, "run-is-live")
    assert "llc stop" in json.loads(body)["error"]["help"]
    assert server.request("POST", f"/api/runs/{run}/stop", {})[0] == 202
    wait_for(lambda: server.data(f"/api/runs/{run}")["status"] == "interrupted")
    status, body, _ = server.request("POST", f"/api/runs/{run}/resume", {})
    assert (status, json.loads(body)["run"]) == (202, run)
    assert server.data(f"/api/runs/{run}")["status"] == "running"
    for at in (None, 0, -1, "1", True, 1.5, 99, 1 << 60):
        assert server.request("POST", f"/api/runs/{run}/fork", {"at": at})[0] in (400, 409), at
    status, body, _ = server.request("POST", f"/api/runs/{run}/fork", {"at": 2})
    assert (status, json.loads(body)["error"]["id"]) == (409, "scope-conflict")
    wait_for(lambda: server.data("/api/questions"))
    answer(server, run, "no")
    wait_for(lambda: server.data(f"/api/runs/{run}")["status"] == "success")
    status, body, _ = server.request("POST", f"/api/runs/{run}/fork", {"at": 2})
    assert status == 202, body
    made = json.loads(body)["run"]
    assert made != run
    assert server.data(f"/api/runs/{made}")["forked_from"]["run"] == run
    server.process.send_signal(signal.SIGINT)
    server.process.wait(TIMEOUT_S)
    assert json.loads(run_llc("status", made, "--json").stdout)["status"] == "running"


def test_a_read_only_page_changes_nothing(run: str) -> None:
    """Neither with the token nor with the cookie."""
    only = Server("--read-only")
    try:
        cookie = only.request("POST", "/session")[2]["set-cookie"].partition(";")[0]
        origin = f"http://127.0.0.1:{only.port}"
        assert len(only.data("/api/questions")) == 1
        for what in ("answer", "stop", "resume", "fork"):
            path = f"/api/runs/{run}/{what}"
            assert only.request("POST", path, {"question": 2, "answer": "go", "at": 1})[0] == 403
            assert only.request("POST", path, {}, None, Cookie=cookie, Origin=origin)[0] == 403
        assert b"data-read-only" in only.request("GET", "/")[1]
        assert only.data(f"/api/runs/{run}")["status"] == "running"
        assert len(only.data("/api/questions")) == 1
    finally:
        only.process.kill()
        only.process.communicate()


def test_ctrl_c_ends_the_server_and_no_run(server: Server, run: str) -> None:
    """Also while a page is open; the exit code is 130."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=TIMEOUT_S)
    bearer = {"Authorization": f"Bearer {server.token}"}
    connection.request("GET", f"/api/runs/{run}/events", headers=bearer)
    server.process.send_signal(signal.SIGINT)
    _, errors = server.process.communicate(timeout=TIMEOUT_S)
    assert (server.process.returncode, errors) == (130, "")
    connection.close()
    assert json.loads(run_llc("status", run, "--json").stdout)["status"] == "running"


def test_a_used_port_is_an_error(server: Server) -> None:
    """With help; so is an invalid port."""
    done = run_llc("ui", "--port", str(server.port))
    assert done.returncode != 0
    assert f"error[cannot-listen]: cannot listen on port {server.port}" in done.stderr
    assert run_llc("ui", "--port", "70000").returncode == 2


def test_slow_clients_stop_neither_the_server_nor_a_run(server: Server, run: str) -> None:
    """500 connections that send incomplete requests or read no response."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (2048, hard))
    clients = []
    head = f"Host: 127.0.0.1:{server.port}\r\nAuthorization: Bearer {server.token}\r\n"
    texts = ("GET / HTT", f"GET /runs/{run} HTTP/1.1\r\n{head}", f"GET /runs/{run} HTTP/1.1\r\n{head}\r\n")
    texts += (f"GET /api/runs/{run}/events HTTP/1.1\r\n{head}\r\n",)
    try:
        for number in range(500):
            clients.append(socket.create_connection(("127.0.0.1", server.port), timeout=TIMEOUT_S))
            clients[-1].sendall(texts[number % 4].encode())
        question = server.data("/api/questions")[0]
        fields = {"question": question["question"], "answer": "no"}
        assert server.request("POST", f"/api/runs/{run}/answer", fields)[0] == 200
        wait_for(lambda: server.data(f"/api/runs/{run}")["status"] == "success")
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(TIMEOUT_S) == 130
    finally:
        for client in clients:
            client.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_pages_work_in_a_browser(server: Server, run: str) -> None:
    """A question is answered, both pages follow the run, and no content is interpreted as HTML."""
    if browser_program() is None:
        pytest.skip("no browser is installed, and LLC_BROWSER is not set")
    origin = f"http://127.0.0.1:{server.port}"
    with contextlib.closing(Browser(origin)) as browser:
        browser.call("Page.navigate", url=server.address)
        browser.wait("document.querySelectorAll('#questions button').length === 2")
        text = browser.evaluate("document.getElementById('questions').textContent")
        assert "Go on <b onclick=window.bad=1>?</b>" in text
        assert server.token not in browser.evaluate("location.href")
        browser.evaluate("[...document.querySelectorAll('#questions button')][0].click()")
        browser.wait("document.getElementById('questions').textContent.includes('What then?')")
        browser.call("Page.navigate", url=f"{origin}/runs/{run}")
        browser.wait("window.report && report.row > 0 && report.row === report.rows.length - 1")
        browser.wait("document.body.textContent.includes('answered')")
        browser.evaluate("document.getElementById('stop').click()")
        browser.wait("!document.getElementById('resume').hidden")
        browser.evaluate("report.go(0), document.getElementById('resume').click()")
        browser.wait("!document.getElementById('stop').hidden")
        wait_for(lambda: [one for one in server.data("/api/questions") if one["run"] == run])
        answer(server, run, "x")
        browser.wait("document.body.textContent.includes('ended with success')")
        browser.wait("document.querySelectorAll('.figure g.unused[data-node]').length === 0")
        assert browser.evaluate("document.querySelectorAll('.figure .cursor').length === 1")
        buttons = "[...document.querySelectorAll('#details button')]"
        fork = f"{buttons}.find((one) => one.textContent === 'Fork here')"
        browser.evaluate("report.go(0)")
        browser.wait(fork)
        browser.evaluate(f"{fork}.click()")
        browser.wait(f"!location.pathname.includes('{run}')")
        forked = browser.evaluate("location.pathname").rpartition("/")[2]
        assert server.data(f"/api/runs/{forked}")["forked_from"]["run"] == run
        assert browser.evaluate("window.bad === undefined")
        assert browser.problems == []


@pytest.mark.parametrize("options", [(), ("--read-only",)])
def test_the_pages_are_accessible(run: str, options: tuple[str, ...]) -> None:
    """axe-core finds no serious violation, and no width needs horizontal scrolling."""
    if browser_program() is None:
        pytest.skip("no browser is installed, and LLC_BROWSER is not set")
    server = Server(*options)
    origin = f"http://127.0.0.1:{server.port}"
    ready = "document.documentElement?.dataset.ready"
    try:
        with contextlib.closing(Browser(origin)) as browser:
            browser.call("Page.navigate", url=server.address)
            browser.wait(f"{ready} && document.querySelector('.question')")
            buttons = browser.evaluate(
                "[...document.querySelectorAll('button')].map((one) => one.textContent)"
            )
            assert buttons == ([] if options else ["go", "no", "Stop"])
            for path in ("/", f"/runs/{run}", "/loops/asks"):
                for scheme, width in (("light", 1280), ("dark", 360)):
                    browser.prefer(scheme)
                    browser.resize(width)
                    browser.call("Page.navigate", url="about:blank")
                    browser.call("Page.navigate", url=origin + path)
                    browser.wait("location.protocol === 'http:' && document.readyState === 'complete'")
                    if not path.startswith("/loops/"):
                        browser.wait(ready)
                    if path == "/":
                        row = "document.querySelector('#running tbody tr').getBoundingClientRect().height"
                        assert browser.evaluate(row) < 60, "the words of the table are broken"
                    assert violations(browser) == [], path
                    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
            assert browser.problems == []
    finally:
        server.process.kill()
        server.process.communicate()
