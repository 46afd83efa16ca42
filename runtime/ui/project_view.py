"""What the page shows of a project, and what it can do there: plain data for the routes.

All of it runs in one thread (`worker`), since bounds of re-execution are global, but `resume` and `fork`,
which wait for another process. Names in a request are compared with the runs and loops that are listed and
never become part of a path.
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
from ..runs.runs import runs_in
from . import continuation
from .feed import Feed

# Runs whose data is kept, and finished runs that are listed at most.
_MOST_FEEDS = 16
_MOST_ENDED = 1000
# Numbers of effects are smaller.
_MOST_EFFECTS = 1 << 53
# Seconds that a run gets to stop by itself.
_STOPPING = 10.0
_ROW = ("run", "program", "status", "state", "iteration", "max_iterations", "started_at", "resumed")
_ENDED = (
    *("run", "program", "status", "final_state", "iterations", "started_at", "ended_at", "duration_ms"),
    *("usd", "tokens", "calls", "unpriced"),
)


@frozen
class Requests:
    """What is asked of runs on other machines, by their ids: to stop, and to be resumed by a worker."""

    stop: Callable[[str], object]
    resume: Callable[[str], object]


class ProjectView:
    """The runs, questions, budgets and loops of the project in the current folder.

    requests: for runs on other machines; None where all runs are on this one.
    """

    def __init__(self, requests: Requests | None = None) -> None:
        self._requests = requests
        self._views: dict[str, RunView] = {}
        self._ended: dict[str, dict[str, Any]] = {}
        self._feeds: dict[str, Feed] = {}

    # --- lists ------------------------------------------------------------------------------------

    def runs(self) -> dict[str, Any]:
        """The unfinished runs and the latest finished ones, the newest first."""
        running = []
        unfinished = {run.id: run for run in locks.unfinished(ROOT)}
        for name in self._views.keys() - unfinished.keys():
            self._views.pop(name).close()
        for run in unfinished.values():
            with contextlib.suppress(UserError):  # its journal cannot be read
                running.append(self._row(run))
        ended: list[dict[str, Any]] = []
        count = 0
        for run in runs_in(ROOT, HISTORY):
            count += 1
            if len(ended) < _MOST_ENDED and (row := self._ended_row(run)) is not None:
                ended.append(row)
        return {"running": running, "ended": ended, "total": len(running) + count}

    def _row(self, run: RunFolder) -> dict[str, Any]:
        if run.id not in self._views:
            self._views[run.id] = RunView(run)
        view = self._views[run.id]
        status = view.status()
        used = view.history.used
        row = {name: status[name] for name in _ROW}
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
            self._ended[run.id] = {name: found[name] for name in _ENDED}
        return self._ended[run.id]

    def questions(self) -> list[dict[str, Any]]:
        """The open questions of all runs, the oldest first."""
        return [one.to_json() for one in answer.questions(None)]

    def budget(self) -> dict[str, Any]:
        """The ledgers, as `llc budget --json`. Raises UserError and CompileError."""
        return ledgers.report(None)

    def loops(self) -> list[dict[str, Any]]:
        """Names and files of the loops."""
        return [{"name": name, "file": path} for name, path in loop_files().items()]

    def graph(self, name: str) -> bytes:
        """The picture of a loop as a page. Raises UserError, CompileError and JournalError."""
        if name not in loop_files():
            raise UserError("unknown-loop", "there is no such loop")
        return picture.as_html(graph_of(name, None, None, False)).encode()

    # --- one run ----------------------------------------------------------------------------------

    def _find(self, name: str) -> RunFolder:
        """The run with that id. Raises UserError."""
        for folder in (*locks.unfinished(ROOT), *runs_in(ROOT, HISTORY)):
            if folder.id == name:
                return folder
        raise UserError("unknown-run", "there is no such run")

    def status(self, name: str) -> dict[str, Any]:
        """A run, as `llc status --json`. Raises UserError."""
        with contextlib.closing(RunView(self._find(name))) as view:
            return view.status()

    def _feed(self, name: str) -> Feed:
        feed = self._feeds.get(name)
        if feed is None or not feed.is_there:
            run = self._find(name)
            if feed is None:
                if len(self._feeds) >= _MOST_FEEDS:
                    oldest = min(self._feeds, key=lambda other: self._feeds[other].used_at)
                    self._feeds.pop(oldest).close()
                feed = self._feeds[name] = Feed(run)
        feed.refresh()
        return feed

    def model(self, name: str) -> dict[str, Any]:
        """All data of a run, as `llc report --format json` has it. Raises UserError and JournalError."""
        return as_data(self._feed(name).since(0))

    def page(self, name: str, script: str, is_read_only: bool) -> bytes:
        """The page of a run, with a script that keeps it up to date. Raises UserError and JournalError."""
        feed = self._feed(name)
        live = {"run": name, "version": f"{feed.stamp}.{feed.version}", "is_read_only": is_read_only}
        return page.render([feed.since(0)], live=page.Live(script, live))

    def version(self, name: str) -> tuple[str, bool] | str:
        """The version of a run now and whether it is live; "" where there is no such run any more."""
        try:
            feed = self._feed(name)
        except (UserError, JournalError):
            return ""
        return f"{feed.stamp}.{feed.version}", feed.is_live

    def since(self, name: str, version: str) -> tuple[str, bytes | None, bool]:
        """The version of a run now, the update to it as JSON if there is one, and whether the run is live.

        An unknown version has no update, but the version now. Raises UserError and JournalError.
        """
        feed = self._feed(name)
        stamp, _, number = version.partition(".")
        now = f"{feed.stamp}.{feed.version}"
        is_known = stamp == feed.stamp and number.isdecimal() and len(number) < 12
        if not is_known or not 0 < int(number) < feed.version:
            return now, None, feed.is_live
        return now, feed.json_since(int(number)), feed.is_live

    def answer(self, name: str, number: Any, text: Any, said: Any) -> dict[str, Any]:
        """Answer the question of a run that has this number and text. Raises UserError."""
        if not isinstance(said, str):
            raise UserError("bad-answer", "`answer` is a text")
        for question in answer.questions(self._find(name).id):
            if question.seq == number and text in (None, question.text):
                return {**question.to_json(), "answer": answer.answer(question, said)}
        raise Failure("nothing-asked", "this question is not open any more")

    def stop(self, name: str) -> dict[str, Any]:
        """Ask a run to stop, without waiting for it. Raises UserError."""
        run = self._find(name)
        if not locks.is_live(run):
            raise stop.not_running(run)
        if self._requests is not None:
            self._requests.stop(run.id)
        else:
            threads.Thread(target=stop.stop, args=([run], _STOPPING), daemon=True).start()
        return {"run": name, "stopping": True}

    def resume(self, name: str) -> dict[str, Any]:
        """Resume an unfinished run in the background; returns once it runs. Raises UserError."""
        run = self._find(name)
        if self._requests is None:
            return continuation.resume(run.id)
        self._requests.resume(run.id)
        return {"run": run.id, "pid": None}

    def fork(self, name: str, at: Any) -> dict[str, Any]:
        """Start a new run from a point of a run, before effect `at`, in the background. Raises UserError."""
        run = self._find(name)
        if not isinstance(at, int) or isinstance(at, bool) or not 0 < at < _MOST_EFFECTS:
            raise UserError("bad-option", "`at` is the number of an effect")
        if self._requests is not None:
            help = f"on the command line: llc fork {run.id} --at {at} --on cluster"
            raise UserError("bad-option", "the page does not fork runs of a database", help)
        return continuation.fork(run.id, at)
