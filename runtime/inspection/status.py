"""`llc status`: state, actions and totals of a run.

A view of its `RunHistory`. Captured values come from the state file, and the output of running actions from
the live file; both files may lag behind the journal.
"""

from __future__ import annotations

import os.path
import sys

from ...ir import light_json
from ...vm.code.image import Image, ImageError
from ...vm.values.text_form import duration_text
from ..host import clock, files, keeper, processes
from ..host.errors import EXIT_OK, UserError
from ..host.paths import HISTORY, ROOT
from ..host.screen import Screen, counted, fit, printable
from ..journal.agent_history import shortened
from ..journal.codec import json_text, seconds
from ..journal.events import ActionStart, RunEnd, RunInterrupted
from ..journal.quantities import amount_text, clock_text
from ..journal.run_folder import RunFolder, has_ended
from ..journal.run_history import CRASHED, INTERRUPTED, EffectHistory, RunHistory
from ..project.limits import budget_limits, iteration_limits
from ..runs import locks, program_file
from ..runs.follower import follow
from ..runs.lookup import find_run_folder, how_to_resume, is_run_of
from ..runs.run_lock import is_live
from ..terminal import live_tail

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Seconds between two updates of `--watch`.
WATCH_INTERVAL_S = 0.25
# Maximum lines of a running action's output.
MAX_TAIL_LINES = 10
_MAX_COLUMNS = 200
_LABEL_COLUMNS = 11
# The error of an unfinished run whose journal has no `run_start`.
_NO_RECORD = {
    "kind": "no-record",
    "message": "the beginning of the journal is lost, so the run cannot be resumed",
}
_STYLES = {
    "running": "green",
    "queued": "yellow",
    "success": "green",
    INTERRUPTED: "yellow",
    CRASHED: "red",
    "failure": "red",
    "error": "red",
    "limit": "yellow",
}


class RunView:
    """The status of a run, read once or repeatedly. The caller must `close` it."""

    def __init__(self, run: RunFolder) -> None:
        self.run = run
        self.history, self._follower = follow(run)
        self.meta = _meta(run)
        self.about = run.about()

    def close(self) -> None:
        self._follower.close()

    def status(self) -> dict[str, Any]:
        """The current status, as `--json` prints it."""
        # Check the lock before reading: a run that has released it writes nothing more.
        alive = is_live(self.run)
        for event in self._follower.events():
            self.history.add(event)
        run, history = self._locate_folder(), self.history
        history.saved_ms = run.saved_ms()
        if alive and (not self.about.get("pid") or self.about.get("queued") or self._is_dead()):
            self.about = run.about()
        now = clock.time()
        state = _state_file(run)
        tails = {tail.seq: tail for tail in live_tail.read(run.live)} if alive else {}
        start, end, stop = history.start, history.end, history.interruption
        limits = self.meta.get("limits", {})
        current_state = end.final_state if end else history.state or state.get("current_state")
        whole = self._follower.expand
        error = whole(end.error) if end else None
        if not alive and error is None:
            why = self.about.get("why")
            error = {"kind": "stopped", "message": why} if why else error if start else _NO_RECORD
        return {
            "run": run.id,
            "program": self.about.get("program", run.name),
            "path": self.about.get("path"),
            "status": self._status_word(alive),
            "terminated_by": end.terminated_by if end else stop.reason if stop and not alive else None,
            "pid": self.about.get("pid") if alive else None,
            "kept": alive and bool(self.about.get("kept")),
            "kept_results": [] if alive or end else _kept_results(run),
            "waits_for": self.about.get("waits_for", []) if alive else [],
            "background": bool(self.about.get("background")),
            "driven_by": _driver(self.about) if alive else None,
            "state": current_state,
            "iteration": history.iteration if end is None else end.iterations,
            "max_iterations": self.max_iterations(current_state),
            "steps": history.steps if end is None else end.steps,
            "forked_from": start.parent if start else None,
            "started_at": history.started_at or self.about.get("started_at"),
            "ended_at": end.ts if end else None,
            "resumed": history.resumed,
            "elapsed_ms": history.active_ms(now if alive else None),
            "timeout_ms": limits.get("timeout_ms"),
            "actions": self._actions(now, tails) if alive else [],
            "agent": self._agent(),
            "files": [[letter, path] for path, letter in history.changed_files.items()],
            "captured": state.get("captured") or {},
            "last_verdict": self._verdict(),
            "budget": _budget(history, self.meta),
            "value": whole(end.value) if end else None,
            "evidence": whole(end.evidence) if end else None,
            "error": error,
            "journal": run.journal,
            "log": run.log if files.exists(run.log) else None,
        }

    def max_iterations(self, state: str | None) -> int | None:
        """The limit of iterations of the loop that contains a state; None for no limit."""
        if not self.meta:
            return None
        return iteration_limits(self.meta).get((state or "").rpartition("/")[0])

    def _locate_folder(self) -> RunFolder:
        """The current folder of the run; the folder moves to the history when the run ends."""
        if not files.exists(self.run.path):
            path = os.path.join(self.run.root, HISTORY, self.run.id)
            if files.exists(path):
                self.run = RunFolder(self.run.root, path)
        return self.run

    def _is_dead(self) -> bool:
        """Whether the process that executed the run has died; a keeper may have its actions."""
        return not processes.is_alive(self.about["pid"], str(self.about.get("start_time")))

    def _status_word(self, alive: bool) -> str:
        if alive and self.history.end is None:
            return "queued" if self.about.get("queued") else "running"
        status = self.history.status
        return INTERRUPTED if status == CRASHED and self.about.get("stopped") else status

    def _agent(self) -> dict[str, Any] | None:
        """The record of the last active agent; None if no agent was called."""
        if self.history.agent is None:
            return None
        found: dict[str, Any] = self._follower.expand(self.history.agent.to_json())
        found["answer"] = shortened(str(found["answer"]))
        return found

    def _verdict(self) -> dict[str, Any] | None:
        event = self.history.verdict
        if event is None:
            return None
        shown = ("state", "type", "verdict", "confidence", "details")
        found = {name: value for name, value in event.wire.items() if name in shown}
        return self._follower.expand(found)  # type: ignore[no-any-return]

    def _actions(self, now: float, tails: dict[int | None, live_tail.Tail]) -> list[dict[str, Any]]:
        """The running effects, the oldest first."""
        pending = sorted(self.history.pending.items())
        found = []
        for seq, effect in pending:
            tail = tails.get(seq) or (tails.get(None) if len(pending) == 1 else None)
            start = effect.start
            started = start.moment if start is not None else None
            found.append(
                {
                    "seq": seq,
                    "kind": effect.kind,
                    "pid": effect.processes[-1][0] if effect.processes else None,
                    "action": action_text(effect, self._follower.expand(effect.args)),
                    "state": (start.state if start is not None else None) or self.history.state,
                    "elapsed_ms": 0 if started is None else max(0, round((now - started) * 1000)),
                    "tail": tail.text if tail is not None else "",
                }
            )
        return found


def _kept_results(run: RunFolder) -> list[int]:
    """The numbers of the effects whose actions ended after the process of the run had died."""
    found = keeper.left(run.path)
    for action in found.values():
        action.close()
    numbers = (name.rpartition("/")[2] for name in found)
    return sorted(int(number) for number in numbers if number.isdecimal())


def action_text(effect: EffectHistory, args: dict[str, Any]) -> str:
    """An effect on one line: its command, or the reason why it waits. args: its arguments, unpacked."""
    if isinstance(effect.start, ActionStart) and isinstance(args.get("command"), str):
        return str(args["command"])
    match effect.kind:
        case "ask":
            choices = [str(choice) for choice in args.get("choices") or ()]
            return f"asking: {args.get('question')}" + (f" ({' / '.join(choices)})" if choices else "")
        case "sleep":
            return f"waiting {args.get('seconds')} s"
        case "evaluate":
            return f"asking {args.get('model')}"
    named = args.get("command") or args.get("name")
    return f"{effect.kind} {named}" if isinstance(named, str) else str(effect.kind)


def _meta(run: RunFolder) -> dict[str, Any]:
    """The metadata of the run's program; {} if the program cannot be read."""
    try:
        return Image.from_bytes(program_file.decode(run.read(run.image_name), run.image)).meta
    except (OSError, ImageError, UserError):
        return {}


def _driver(about: dict[str, Any]) -> str | None:
    """The worker or batch that executes a run together with others; None for a process of its own."""
    if "worker" in about:
        return f"worker {about['worker']}"
    return "batch" if "host" in about else None


def _state_file(run: RunFolder) -> dict[str, Any]:
    """The content of the run's state file; {} if it is missing or damaged."""
    try:
        found = light_json.loads(run.read(run.state_name))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def unfinished() -> list[dict[str, Any]]:
    """The unfinished runs, the latest first, as `llc list --running` shows them.

    A run that crashed after its end, before its folder was moved, is `ended`.
    """
    rows = []
    for run in locks.unfinished(ROOT):
        alive = is_live(run)
        about, state = run.about(), _state_file(run)
        word = "running" if alive else unfinished_status(run)
        started = seconds(about.get("started_at"))
        rows.append(
            {
                "run": run.id,
                "program": about.get("program", run.name),
                "status": "queued" if alive and about.get("queued") else word,
                "pid": about.get("pid") if alive else None,
                "waits_for": about.get("waits_for", []) if alive else [],
                "background": bool(about.get("background")),
                "state": state.get("current_state"),
                "iteration": state.get("iteration"),
                "forked_from": about.get("forked_from"),
                "started_at": about.get("started_at"),
                "age_ms": None if started is None else max(0, round((clock.time() - started) * 1000)),
            }
        )
    return rows


def unfinished_status(run: RunFolder) -> str:
    """The status of an unfinished run that no process executes: `ended`, or a status of `RunHistory`."""
    match run.last_event():
        case RunEnd():
            return "ended"
        case RunInterrupted():
            return INTERRUPTED
    return INTERRUPTED if run.about().get("stopped") else CRASHED


# --- for people -------------------------------------------------------------------------------


def as_text(status: dict[str, Any], screen: Screen, width: int = _MAX_COLUMNS) -> str:
    """A status for people, in lines of at most `width` columns."""
    more = "…" if screen.unicode else "..."
    lines: list[str] = []

    def row(label: str, text: str, style: str = "") -> None:
        shown = fit(_one_line(text), max(width - _LABEL_COLUMNS - 2, 20), more)
        lines.append(f"  {label.ljust(_LABEL_COLUMNS)}{screen.paint(shown, style)}")

    word = status["status"]
    about = _driver_text(status)
    room = width - len(word) - 2
    if len(status["run"]) + len(about) > room:
        about = ""
    name = fit(printable(status["run"]), room, more)
    lines.append(f"{name}: {screen.paint(word, _STYLES.get(word, ''))}{about}")
    file = f" ({status['path']})" if status["path"] else ""
    row("program", f"{status['program']}{file}")
    if status["forked_from"]:
        row("fork of", f"{status['forked_from']['run']} before effect {status['forked_from']['at']}")
    if status["waits_for"]:
        row("waits for", ", ".join(status["waits_for"]))
    if status["state"] is not None:
        row("state", str(status["state"]))
    if status["iteration"]:
        limit = f" of {status['max_iterations']}" if status["max_iterations"] else ""
        row("iteration", f"{status['iteration']}{limit}")
    limit = f" of {duration_text(status['timeout_ms'])}" if status["timeout_ms"] else ""
    times = {1: ", resumed once"}.get(status["resumed"], f", resumed {status['resumed']} times")
    row("elapsed", duration_text(status["elapsed_ms"]) + limit + (times if status["resumed"] else ""))
    for action in status["actions"]:
        row("action", f"{action['action']} ({duration_text(action['elapsed_ms'])})")
        lines += _tail_lines(action["tail"], screen, width, more)
        if action["kind"] == "ask":
            row("", f"answer with: llc answer {status['run']}", "yellow")
    if status["agent"] is not None:
        _agent_rows(status["agent"], row)
    if status["files"]:
        changes = [f"{letter} {path}" for letter, path in status["files"]]
        more_files = f" and {len(changes) - 5} more" if len(changes) > 5 else ""
        row("files", f"{', '.join(changes[:5])}{more_files}; see: llc diff {status['run']}")
    _value_rows(status, row)
    if status["evidence"]:
        row("evidence", _evidence_text(status["evidence"]))
    if status["error"]:
        row("error", str(status["error"].get("message")), "red")
    _survivor_rows(status, row)
    if status["log"]:
        row("log", status["log"])
    if word in (INTERRUPTED, CRASHED):
        hint = how_to_resume(status["run"])
        if has_ended(status["journal"]):
            hint = f"The run has ended, but its outcome is lost; see: llc logs {status['run']}"
        elif status["error"] == _NO_RECORD:
            hint = f"Remove it with: llc clean {status['run']} --unfinished"
        lines.append(fit(hint, width, more))
    return "".join(line + "\n" for line in lines)


def _driver_text(status: dict[str, Any]) -> str:
    """What drives a run, and what ended it, in parentheses."""
    facts = []
    if status["pid"] is not None:
        how = ", in a batch" if status["driven_by"] else ", in the background" if status["background"] else ""
        is_worker = (status["driven_by"] or "batch") != "batch"
        facts.append(status["driven_by"] if is_worker else f"pid {status['pid']}{how}")
    if status["terminated_by"] not in (None, "terminal", "return", "error", "interrupt"):
        facts.append(f"by {status['terminated_by']}")
    return f" ({'; '.join(facts)})" if facts else ""


def _survivor_rows(status: dict[str, Any], row: Any) -> None:
    """Add rows about actions that have survived the process of the run."""
    if status["kept"]:
        pids = [str(action["pid"]) for action in status["actions"] if action["pid"] is not None]
        actions = "its action continues" if len(pids) < 2 else f"its {len(pids)} actions continue"
        row("note", f"the process of the run has died, and {actions} (pid {', '.join(pids) or 'unknown'})")
        row("", "its output is kept, and shown after the take-over")
        row("", f"to take it over: llc resume {status['run']}; to end it: llc stop {status['run']}")
    count = len(status["kept_results"])
    if count:
        subject = "an action" if count == 1 else f"{count} actions"
        results = "its result is" if count == 1 else "their results are"
        row(
            "note",
            f"{subject} ended after the process of the run had died; {results} used when it is resumed",
        )


def _evidence_text(evidence: dict[str, Any]) -> str:
    """The evidence of a success, on one line."""
    facts = [f"{evidence.get('verdict')} in {evidence.get('state')}"]
    if evidence.get("judge"):
        facts.append(f"judged by {evidence['judge']}")
    if "exit_code" in evidence:
        facts.append(f"`{evidence.get('command')}` ended with {evidence['exit_code']}")
    if evidence.get("tree"):
        facts.append(f"tree {str(evidence['tree'])[:12]}")
    return ", ".join(facts) + ("" if evidence.get("is_current", True) else "; files have changed since")


def _agent_rows(agent: dict[str, Any], row: Any) -> None:
    """Add rows about an agent: session, running tools, written files, refusals, answer."""
    facts = [f"{name} {agent[name]}" for name in ("session", "model") if agent[name]]
    facts += [counted(agent["tools"], "tool")] if agent["tools"] else []
    if facts:
        row("agent", ", ".join(facts))
    if "waits" in agent:
        until = clock_text(agent["waits"]["until"])
        row("waits for", f"quota of the account {agent['waits']['account']} until {until}", "yellow")
    for tool in agent["running"]:
        row("uses", tool)
    if agent["files"]:
        row("wrote", ", ".join(agent["files"]))
    for tool in agent["refusals"][:5]:
        row("refused", tool, "yellow")
    if agent["answer"].strip():
        row("answer", agent["answer"])


def _budget(history: RunHistory, meta: dict[str, Any]) -> dict[str, Any]:
    """For each unit, the amount used and the lower of the limits of the program and of the run."""
    limits = budget_limits(meta, (history.start.budget if history.start else None) or {})
    budget: dict[str, Any] = {
        unit: {"used": amount, "limit": limits[unit]} for unit, amount in history.used.by_unit().items()
    }
    if history.used.unpriced:
        budget["usd"]["unpriced"] = history.used.unpriced
    return budget


def _value_rows(status: dict[str, Any], row: Any) -> None:
    """Add rows about the last verdict, captured values and the budget."""
    verdict = status["last_verdict"]
    if verdict is not None:
        details = verdict.get("details")
        details = details if isinstance(details, dict) else {}
        facts = [f"in {verdict.get('state')}"]
        if "confidence" in verdict:
            facts.append(f"confidence {verdict['confidence']}")
        for name in ("exit_code", "value", "current", "reason"):
            if details.get(name) is not None:
                facts.append(f"{name.replace('_', ' ')} {details[name]}")
        row("verdict", f"{verdict.get('verdict')} ({', '.join(facts)})")
    label = "captured"
    for name, value in status["captured"].items():
        row(label, f"{name} = {value_text(value)}")
        label = ""
    spent = []
    for unit, found in status["budget"].items():
        used, limit = found["used"], found["limit"]
        if limit is not None or (used and unit != "seconds"):
            spent.append(amount_text(unit, used, limit, bool(found.get("unpriced"))))
    if spent:
        row("spent", ", ".join(spent))


def value_text(value: Any) -> str:
    """A captured value on one line."""
    if isinstance(value, dict) and "output" in value and "exit_code" in value:
        lines = str(value["output"]).strip().splitlines()
        text = lines[0].strip() if lines else "(no output)"
        if len(lines) > 1:
            text += f" (and {len(lines) - 1} more line{'s' if len(lines) > 2 else ''})"
        return text + (f" (exit {value['exit_code']})" if value["exit_code"] else "")
    return value if isinstance(value, str) else light_json.dumps(value)


def _tail_lines(text: str, screen: Screen, width: int, more: str) -> list[str]:
    bar = "│" if screen.unicode else "|"
    found = text.rstrip("\n").split("\n")[-MAX_TAIL_LINES:] if text.strip() else []
    room = max(width - _LABEL_COLUMNS - 4, 20)
    shown = [printable(line.rstrip("\r").rpartition("\r")[2]) for line in found]
    return [
        f"  {' ' * _LABEL_COLUMNS}{screen.paint(f'{bar} {fit(line, room, more)}', 'dim')}".rstrip()
        for line in shown
    ]


def _one_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    if not lines:
        return ""
    return printable(lines[0].strip()) + (" …" if len(lines) > 1 else "")


def watch(run: RunFolder, as_json: bool, write: Any) -> int:
    """Show the status of a run and each change of it, until no process executes the run."""
    screen = Screen(sys.stdout)
    view = RunView(run)
    drawn = 0
    before: Any = None
    try:
        while True:
            status = view.status()
            is_over = status["status"] not in ("running", "queued")
            if as_json:
                compared = {name: status[name] for name in status if not name.endswith("elapsed_ms")}
                compared["actions"] = [{**action, "elapsed_ms": None} for action in status["actions"]]
                if compared != before:
                    write(json_text(status) + "\n")
                before = compared
            elif screen.is_live:
                text = as_text(status, screen, screen.width - 1)
                lines = text.splitlines()[: max(4, screen.height - 1)]
                up = f"\x1b[{drawn}F" if drawn else ""
                write(up + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J")
                drawn = len(lines)
            else:
                position = (status["status"], status["state"], status["iteration"], status["steps"])
                if position != before:
                    write(as_text(status, screen) + "\n")
                before = position
            if is_over:
                return EXIT_OK
            clock.sleep(WATCH_INTERVAL_S)
    finally:
        view.close()


def select_runs(target: str | None) -> list[RunFolder]:
    """The runs to show: the run `target`; a loop's running runs or its last run; or all unfinished runs."""
    unfinished_runs = locks.unfinished(ROOT)
    if target is None:
        return unfinished_runs
    live = [run for run in unfinished_runs if run.id != target and is_run_of(run, target) and is_live(run)]
    return live if len(live) > 1 else [find_run_folder(target)]


def of(run: RunFolder) -> dict[str, Any]:
    """The current status of a run. Raises UserError."""
    view = RunView(run)
    try:
        return view.status()
    finally:
        view.close()
