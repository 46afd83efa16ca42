"""Data and actions of a project for the routes of the server, as plain data.

All methods run in one thread (`job_thread`), because the limits of re-execution are global; only `resume` and
`fork`, which wait for another process, run in a second one. Names in a request are compared with the listed
runs and loops, and never become part of a path.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from ...ir.records import frozen
from ..graph import picture
from ..graph.commands import graph_of
from ..host import threads
from ..host.errors import Failure, UserError
from ..host.paths import HISTORY, ROOT
from ..inspection import answer, history, ledgers, stop
from ..inspection.status import RunView
from ..journal.journal import JournalError
from ..journal.run_folder import RunFolder
from ..report import page
from ..report.model import as_data
from ..runs import locks
from ..runs.loop_names import loop_files
from ..runs.run_lock import is_live
from ..runs.runs import runs_in
from . import continuation
from .feed import Feed

# Limits of cached feeds and of listed finished runs.
_MAX_FEEDS = 16
_MAX_ENDED = 1000
# Upper bound of effect numbers.
_MAX_EFFECT_NUMBER = 1 << 53
# Seconds to wait before a run is killed.
_STOP_TIMEOUT_S = 10.0
_UNFINISHED_FIELDS = (
    "run",
    "program",
    "status",
    "state",
    "iteration",
    "max_iterations",
    "started_at",
    "resumed",
)
_ENDED_FIELDS = (
    *("run", "program", "status", "final_state", "iterations", "started_at", "ended_at", "duration_ms"),
    *("usd", "tokens", "calls", "unpriced"),
)


@frozen
class Requests:
    """Requests for runs on other machines, by run id: to stop, and to be resumed by a worker."""

    stop: Callable[[str], object]
    resume: Callable[[str], object]


class ProjectView:
    """The runs, questions, budgets and loops of the project in the current folder.

    requests: for runs on other machines; None if all runs are on this machine.
    """

    def __init__(self, requests: Requests | None = None) -> None:
        self._requests = requests
        self._views: dict[str, RunView] = {}
        self._ended: dict[str, dict[str, Any]] = {}
        self._feeds: dict[str, Feed] = {}

    # --- lists ------------------------------------------------------------------------------------

    def runs(self) -> dict[str, Any]:
        """The unfinished runs and the latest finished runs, the newest first."""
        running = []
        unfinished = {run.id: run for run in locks.unfinished(ROOT)}
        for name in self._views.keys() - unfinished.keys():
            self._views.pop(name).close()
        for run in unfinished.values():
            with contextlib.suppress(UserError):  # the journal cannot be read
                running.append(self._row(run))
        ended: list[dict[str, Any]] = []
        count = 0
        for run in runs_in(ROOT, HISTORY):
            count += 1
            if len(ended) < _MAX_ENDED and (row := self._ended_row(run)) is not None:
                ended.append(row)
        return {"running": running, "ended": ended, "total": len(running) + count}

    def _row(self, run: RunFolder) -> dict[str, Any]:
        if run.id not in self._views:
            self._views[run.id] = RunView(run)
        view = self._views[run.id]
        status = view.status()
        used = view.history.used
        row = {name: status[name] for name in _UNFINISHED_FIELDS}
        row |= {"usd": round(used.usd, 9), "tokens": used.tokens, "calls": used.calls}
        requests = view.history.permission_requests if status["pid"] else []
        row["questions"] = len(list(view.history.questions)) + len(list(requests))
        row["unpriced"] = used.unpriced
        return row

    def _ended_row(self, run: RunFolder) -> dict[str, Any] | None:
        if run.id not in self._ended:
            found = history.facts(run)  # it does not change any more
            if found is None:
                return None
            self._ended[run.id] = {name: found[name] for name in _ENDED_FIELDS}
        return self._ended[run.id]

    def questions(self) -> list[dict[str, Any]]:
        """The open questions of all runs, the oldest first."""
        return [question.to_json() for question in answer.questions(None)]

    def budget(self) -> dict[str, Any]:
        """The ledgers, as `llc budget --json`. Raises UserError and CompileError."""
        return ledgers.report(None)

    def loops(self) -> list[dict[str, Any]]:
        """Names and files of the loops."""
        return [{"name": name, "file": path} for name, path in loop_files().items()]

    def graph(self, name: str) -> bytes:
        """The diagram of a loop as an HTML page. Raises UserError, CompileError and JournalError."""
        if name not in loop_files():
            raise UserError("unknown-loop", "there is no such loop")
        return picture.as_html(graph_of(name, None, None, False)).encode()

    # --- one run ----------------------------------------------------------------------------------

    def _find(self, name: str) -> RunFolder:
        """The run with this id. Raises UserError."""
        for folder in (*locks.unfinished(ROOT), *runs_in(ROOT, HISTORY)):
            if folder.id == name:
                return folder
        raise UserError("unknown-run", "there is no such run")

    def status(self, name: str) -> dict[str, Any]:
        """The status of a run, as `llc status --json`. Raises UserError."""
        with contextlib.closing(RunView(self._find(name))) as view:
            return view.status()

    def _feed(self, name: str) -> Feed:
        feed = self._feeds.get(name)
        if feed is None or not feed.has_folder:
            run = self._find(name)
            if feed is None:
                if len(self._feeds) >= _MAX_FEEDS:
                    oldest = min(self._feeds, key=lambda other: self._feeds[other].used_at)
                    self._feeds.pop(oldest).close()
                feed = self._feeds[name] = Feed(run)
        feed.refresh()
        return feed

    def model(self, name: str) -> dict[str, Any]:
        """All data of a run, as `llc report --format json`. Raises UserError and JournalError."""
        return as_data(self._feed(name).since(0))

    def page(self, name: str, script: str, is_read_only: bool) -> bytes:
        """The page of a run, with a script that updates it. Raises UserError and JournalError."""
        feed = self._feed(name)
        live = {"run": name, "version": f"{feed.stamp}.{feed.version}", "is_read_only": is_read_only}
        return page.render([feed.since(0)], live=page.Live(script, live))

    def version(self, name: str) -> tuple[str, bool] | str:
        """The current version of a run and whether it is live; "" if the run does not exist any more."""
        try:
            feed = self._feed(name)
        except (UserError, JournalError):
            return ""
        return f"{feed.stamp}.{feed.version}", feed.is_live

    def since(self, name: str, version: str) -> tuple[str, bytes | None, bool]:
        """The current version of a run, the update to it as JSON, and whether the run is live.

        The update is None for an unknown or the current version. Raises UserError and JournalError.
        """
        feed = self._feed(name)
        stamp, _, number = version.partition(".")
        current = f"{feed.stamp}.{feed.version}"
        is_known = stamp == feed.stamp and number.isdecimal() and len(number) < 12
        if not is_known or not 0 < int(number) < feed.version:
            return current, None, feed.is_live
        return current, feed.json_since(int(number)), feed.is_live

    def answer(self, name: str, number: Any, text: Any, reply: Any) -> dict[str, Any]:
        """Answer the question of a run with this number and text (None: any text). Raises UserError."""
        if not isinstance(reply, str):
            raise UserError("bad-answer", "`answer` must be a text")
        for question in answer.questions(self._find(name).id):
            if question.seq == number and text in (None, question.text):
                return {**question.to_json(), "answer": answer.answer(question, reply)}
        raise Failure("nothing-asked", "this question is no longer open")

    def stop(self, name: str) -> dict[str, Any]:
        """Request a run to stop, without waiting for its end. Raises UserError."""
        run = self._find(name)
        if not is_live(run):
            raise stop.not_running(run)
        if self._requests is not None:
            self._requests.stop(run.id)
        else:
            threads.Thread(target=stop.stop, args=([run], _STOP_TIMEOUT_S), daemon=True).start()
        return {"run": name, "stopping": True}

    def resume(self, name: str) -> dict[str, Any]:
        """Resume an unfinished run in the background; return when it is running. Raises UserError."""
        run = self._find(name)
        if self._requests is None:
            return continuation.resume(run.id)
        self._requests.resume(run.id)
        return {"run": run.id, "pid": None}

    def fork(self, name: str, at: Any) -> dict[str, Any]:
        """Fork a run before effect `at`; the new run is in the background. Raises UserError."""
        run = self._find(name)
        if not isinstance(at, int) or isinstance(at, bool) or not 0 < at < _MAX_EFFECT_NUMBER:
            raise UserError("bad-option", "`at` must be the number of an effect")
        if self._requests is not None:
            help = f"on the command line: llc fork {run.id} --at {at} --on cluster"
            raise UserError("bad-option", "the page cannot fork runs of a database", help)
        return continuation.fork(run.id, at)
