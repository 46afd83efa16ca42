"""`llc logs`: the events of a run as lines of text."""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from ...vm.values.text_form import duration_text
from ..host import clock, secrets
from ..host.errors import EXIT_OK
from ..host.screen import Screen, counted, printable
from ..journal import agent_text
from ..journal import events as kinds
from ..journal.codec import strict_json
from ..journal.quantities import local_time, usage_texts, zone_name
from ..journal.reader import Damage, ReadError, read, tail_offset
from ..journal.run_folder import RunFolder
from ..runs.follower import Follower, damage_notes
from ..runs.lookup import how_to_resume
from ..runs.run_lock import is_live
from ..terminal.action_text import MARKS, failure_text, tone
from ..terminal.verdict_text import verdict_text
from .stop import describe_unfinished

# Maximum lines of an output; `--verbose` shows all.
MAX_LINES = 20
# Activities of an agent that are shown as warnings.
_WARNINGS = ("refusal", "error", "retry", "rate-limit", "quota-wait", "bound")
# Number of events that are formatted and written at once.
_EVENTS_PER_WRITE = 1000
# Seconds between two reads of a followed journal.
POLL_INTERVAL_S = 0.1


class LogFormatter:
    """Formats events as lines: the local time, then the event."""

    def __init__(self, run: RunFolder, follower: Follower, screen: Screen, is_verbose: bool) -> None:
        self._run = run
        self._follower = follower
        self._screen = screen
        self._max_lines = 1 << 60 if is_verbose else MAX_LINES
        self._is_verbose = is_verbose
        self._day = ""
        self._marks = MARKS[screen.unicode]

    def lines(self, event: kinds.Event) -> Iterator[str]:
        if not self._is_verbose and _is_detail(event):
            return
        day, clock = local_time(event.ts)
        if day != self._day:
            self._day = day
            yield self._screen.paint(f"{printable(day)} ({zone_name(event.ts)})", "bold")
        clock = self._screen.paint(printable(clock), "dim")
        first = True
        whole = self._follower.expand(event.wire)
        for line in self._text(event.of(whole)):
            yield f"{clock if first else ' ' * 12}  {line}"
            first = False

    def _text(self, event: kinds.Event) -> Iterator[str]:
        paint = self._screen.paint
        match event:
            case kinds.RunStart():
                of = event.program + (f" ({event.path})" if event.path else "")
                parent = event.parent
                how = f"is forked from {parent['run']} before effect {parent['at']}" if parent else "starts"
                yield paint(printable(f"run {event.run} of {of} {how}"), "bold")
                for name, value in (event.overrides or {}).items():
                    yield printable(f"  {name}: {_short(value)}")
            case kinds.RunResume():
                yield paint(printable("run resumes" + _in_state(event.state)), "bold")
                yield from (printable(f"  {sentence}") for sentence in event.lost)
            case kinds.RunInterrupted():
                yield paint(printable("run stops" + _in_state(event.state)), "yellow")
            case kinds.RunEnd():
                yield from self._end(event)
            case kinds.LoopStart():
                yield printable(f"loop {event.loop}")
            case kinds.StateEnter():
                yield paint(printable(f"[{event.iteration}] {event.shown_state}"), "bold")
            case kinds.Evaluate():
                verdict = str(event.verdict)
                mark, style = tone(verdict)
                details = event.details if isinstance(event.details, dict) else {}
                about = verdict_text(str(event.type), verdict, details, self._screen.unicode)
                text = paint(f"  {self._marks[mark]} {printable(verdict)}", style)
                yield text + (f" ({about})" if about else "")
                if verdict != "error" and details.get("reason"):
                    yield paint(printable(f"    {_short(details['reason'])}"), "dim")
            case kinds.Route():
                yield printable(f"  {self._marks['to']} {event.to}")
            case kinds.Handoff():
                yield printable(f"  hands over ({event.policy}): {_short(event.text)}")
            case kinds.Hook():
                yield printable(f"  hook {event.hook}")
            case kinds.Cycle():
                yield printable(f"cycle {event.cycle}")
            case kinds.Log():
                yield from (printable(line) for line in str(event.message).splitlines() or [""])
            case kinds.LoopComplete():
                whose = f"loop {event.loop}" if event.loop is not None else "loop"
                cycle = "" if event.cycles is None else f" in cycle {event.cycles}"
                yield printable(f"{whose} ends in {event.final_state}{cycle}: {event.terminated_by}")
            case kinds.ActionStart():
                first, *more = str(event.action).strip().splitlines() or [""]
                yield f"  #{event.seq} $ {printable(first)}"
                yield from (f"       {printable(line)}" for line in more)
            case kinds.ActionComplete():
                yield from self._result(event)
            case kinds.EffectStart():
                yield printable(f"  #{event.seq} {event.kind} {_short(event.args)}")
            case kinds.EffectComplete():
                yield printable(f"  #{event.seq} result {_short(event.result)}")
            case kinds.AgentActed() | kinds.Guarded() | kinds.TreeTaken():
                style = "yellow" if isinstance(event, kinds.AgentActed) and event.what in _WARNINGS else "dim"
                lines = agent_text.describe(event, self._is_verbose)
                yield from (paint(printable(f"     {line}"), style) for line in lines)
            case _:
                yield printable(f"{event.kind_name} {_short(event.own_fields())}")

    def _end(self, event: kinds.RunEnd) -> Iterator[str]:
        status = str(event.status)
        style = {"success": "green", "limit": "yellow"}.get(status, "red")
        by = event.terminated_by
        why = f" by {by}" if by not in (None, "terminal", "return", "error") else ""
        count = event.iterations
        facts = f"{counted(count, 'iteration')}, {duration_text(event.duration_ms or 0)}"
        yield self._screen.paint(printable(f"run ends: {status}{why} ({facts})"), style)
        if event.value is not None:
            yield printable(f"  value {_short(event.value)}")
        if event.error:
            yield printable(f"  {event.error.get('kind')}: {event.error.get('message')}")

    def _result(self, event: kinds.ActionComplete) -> Iterator[str]:
        result = event.result or {}
        for stream in ("output", "stderr"):
            yield from self._output_lines(f"     {self._marks['bar']} ", str(result.get(stream) or ""))
        failed = failure_text({"duration_ms": 0, "exit_code": 0, **result})
        usage = result.get("usage")
        spent = usage_texts(usage) if isinstance(usage, dict) else []
        facts = ", ".join([duration_text(event.duration_ms or 0), *spent])
        text = printable(f"  #{event.seq} {failed or 'exit 0'} ({facts})")
        yield self._screen.paint(text, "red" if failed else "")

    def _output_lines(self, head: str, text: str) -> Iterator[str]:
        """The last lines of an output, each after `head`."""
        lines = text.rstrip("\n").splitlines() if text.strip() else []
        hidden = len(lines) - self._max_lines
        if hidden > 0:
            yield f"{head}… {hidden} more lines; --verbose shows them"
            lines = lines[hidden:]
        for line in lines:
            yield head + printable(line.rpartition("\r")[2] or line)


def _short(value: Any) -> str:
    """A value on one line of at most 160 characters."""
    if isinstance(value, dict):
        text = ", ".join(f"{name} {_short(item)}" for name, item in value.items() if item is not None)
    else:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = " ".join(text.split())
    return text if len(text) <= 160 else text[:159] + "…"


def _in_state(state: str | None) -> str:
    return f" in {state}" if state else ""


def _without_details(events: Iterator[kinds.Event], has_details: bool) -> Iterator[kinds.Event]:
    """The events, without details unless `has_details`."""
    return events if has_details else (event for event in events if not _is_detail(event))


def _is_detail(event: kinds.Event) -> bool:
    """Whether an event is shown only with `--verbose`."""
    return isinstance(event, kinds.Process) or agent_text.is_detail(event)


def _tail_offset(run: RunFolder, last: int, has_details: bool) -> int:
    """The offset from which to read the journal to get the last `last` shown events."""
    count = last
    try:
        while True:
            offset = tail_offset(run.journal, count)
            entries = read(run.journal, offset)
            events = (entry for entry in entries if not isinstance(entry, Damage))
            if not offset or sum(1 for _ in _without_details(events, has_details)) >= last:
                return offset
            count *= 2
    except ReadError:
        return 0


def show(
    run: RunFolder,
    follow: bool,
    as_json: bool,
    is_verbose: bool,
    last: int | None,
    write: Callable[[str], None],
) -> int:
    """Write the events of a run; returns the exit code.

    Args:
        run: the run.
        follow: also write new events until no process executes the run.
        as_json: write the events as JSON lines.
        is_verbose: show details and complete outputs.
        last: only this many of the last events; None for all.
        write: writes text to stdout.
    """
    has_details = as_json or is_verbose
    follower = Follower(run, 0 if last is None else _tail_offset(run, last, has_details))
    formatter = LogFormatter(run, follower, Screen(sys.stdout), is_verbose)

    def write_all(last: int | None = None) -> bool:
        """Write the new events, or only the `last` ones; returns whether the run has ended with them."""
        event = None
        events = _without_details(follower.events(), has_details)
        if last is not None:
            events = iter(deque(events, last))
        while batch := list(islice(events, _EVENTS_PER_WRITE)):
            event = batch[-1]
            write("".join(map(text_of, batch)))
        return isinstance(event, kinds.RunEnd)

    def text_of(event: kinds.Event) -> str:
        if as_json:
            whole = follower.expand(event.wire)
            return strict_json(secrets.known.mask_all(whole)).decode() + "\n"
        return "".join(line + "\n" for line in formatter.lines(event))

    try:
        has_ended = write_all(last) or (last == 0 and isinstance(run.last_event(), kinds.RunEnd))
        alive = True
        while follow and alive and not has_ended:
            # Check the lock before reading: a run that has released it writes nothing more.
            alive = is_live(run)
            has_ended = write_all()
            if alive and not has_ended:
                clock.sleep(POLL_INTERVAL_S)
        if not alive and not has_ended:
            Screen(sys.stderr).write(f"{describe_unfinished(run)}\n{how_to_resume(run.id)}\n")
        Screen(sys.stderr).write(damage_notes(run.journal, follower.damaged))
    finally:
        follower.close()
    return EXIT_OK
