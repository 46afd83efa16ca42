"""`llc ui`: delay until an event is on the page of its run, the list of 1,000 runs, and many viewers."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

from place import ROOT, Place
from report import Section, row
from sizes import Sizes

_LOOP = """
name: ticks
initial: tick
max_iterations: 100000
states:
  tick: {action: "sleep 0.2", next: tock}
  tock: {action: "true", next: tick}
"""
_SHORT = "name: short\ninitial: one\nstates:\n  one: {action: 'true', next: done}\n  done: {terminal: true}\n"
# Of each effect that the page shows, how long after its end in the journal the page has drawn it, in seconds.
_LISTEN = """(() => {
  const found = window.found = [];
  const update = report.update.bind(report);
  report.update = async (data) => {
    const before = report.runs[0].steps.filter((step) => step.end !== undefined).length;
    await update(data);
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
    const run = report.runs[0];
    for (const step of run.steps.filter((one) => one.end !== undefined).slice(before)) {
      found.push((Date.now() - Date.parse(run.about.started) - step.end) / 1000);
    }
  };
})()"""
_AIM_EVENT, _AIM_LIST, _AIM_VIEWERS = 0.1, 0.2, 0.1
_WATCHED_S = 5.0


def section(place: Place, sizes: Sizes) -> Section:
    found = Section(
        name="pages",
        title=f"Pages of `llc ui`: {sizes.page_runs:,} runs, {sizes.page_viewers} viewers",
        about=(
            "A live run in Chromium: the time from the end of an effect in the journal to the frame that "
            "shows it. The list of runs is requested once before, because it is cached. The cost of "
            "viewers of one live run is the processor time of the server divided by the elapsed time."
        ),
    )
    place.write_loop("ticks", _LOOP)
    place.write_loop("short", _SHORT)
    place.seconds([*place.llc, "run", "short", "--quiet"])
    _multiply(Path(place.inside(".loops", ".history")), sizes.page_runs)
    place.seconds([*place.llc, "run", "ticks", "--background", "--quiet"])
    server = subprocess.Popen(
        [*place.llc, "ui"], cwd=place.folder, env=place.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        assert server.stdout is not None
        address = server.stdout.readline().decode().strip()
        if not address:
            assert server.stderr is not None
            found.notes.append(f"the server did not start: {server.stderr.read().decode().strip()}")
            return found
        _measure(found, _Client(address), server.pid, sizes)
    finally:
        server.terminate()
        server.communicate()
        place.seconds([*place.llc, "stop", "--all"])
    return found


def _multiply(history: Path, count: int) -> None:
    """Create copies of the finished run under other names."""
    (run,) = [path for path in history.iterdir() if path.is_dir()]
    for number in range(count - 1):
        minutes, seconds = divmod(number, 60)
        shutil.copytree(
            run, history / f"short-20200101-{minutes // 60:02}{minutes % 60:02}{seconds:02}-{number:04x}"
        )


class _Client:
    def __init__(self, address: str) -> None:
        self.address = address
        base, _, token = address.partition("/#token=")
        self.origin = base
        self.port = int(base.rpartition(":")[2])
        self._headers = {"Authorization": f"Bearer {token}"}

    def open(self, path: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("GET", path, headers=self._headers)
        return connection.getresponse()

    def data(self, path: str) -> Any:
        return json.loads(self.open(path).read())


def _measure(found: Section, client: _Client, pid: int, sizes: Sizes) -> None:
    listed = []
    for _ in range(sizes.page_rounds + 1):
        started_at = perf_counter()
        runs = client.data("/api/runs")
        listed.append(perf_counter() - started_at)
    found.add(row(f"{runs['total']:,} runs listed", listed[1:], aim=_AIM_LIST, aim_is_absolute=True))
    name = runs["running"][0]["run"]
    _in_browser(found, client, name, sizes)
    page = client.open(f"/runs/{name}").read().decode()
    version = json.loads(page.partition('id="head">')[2].partition("</script>")[0])["live"]["version"]

    def view() -> None:
        response = client.open(f"/api/runs/{name}/events?from={version}")
        while response.readline():
            pass

    for _ in range(sizes.page_viewers):
        threading.Thread(target=view, daemon=True).start()
    sleep(1)
    started_at, before = perf_counter(), _processor_seconds(pid)
    sleep(_WATCHED_S)
    part = (_processor_seconds(pid) - before) / (perf_counter() - started_at)
    what = f"processor time a second, {sizes.page_viewers} viewers"
    found.add(row(what, [part], aim=_AIM_VIEWERS, aim_is_absolute=True))


def _processor_seconds(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _in_browser(found: Section, client: _Client, name: str, sizes: Sizes) -> None:
    sys.path.append(os.path.join(ROOT, "tests"))
    from browser import Browser, browser_program

    if browser_program() is None:
        found.notes.append("no browser is installed: the page was not opened")
        return
    browser = Browser(client.origin)
    try:
        browser.call("Page.navigate", url=client.address)
        browser.wait("document.documentElement.dataset.ready")
        browser.call("Page.navigate", url=f"{client.origin}/runs/{name}")
        browser.wait("document.documentElement.dataset.ready && window.report")
        browser.evaluate(_LISTEN)
        browser.wait(f"window.found.length >= {sizes.page_events}")
        seconds = sorted(browser.evaluate("window.found"))
    finally:
        browser.close()
    found.add(row("an event is on the page", seconds))
    last = seconds[int(len(seconds) * 0.95)]
    found.add(row("95 % of them at the latest", [last], aim=_AIM_EVENT, aim_is_absolute=True))
