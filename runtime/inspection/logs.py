"""A run's journal told in lines for people: `llc logs`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

from ...vm.primitives.handlers import duration
from ..host import clock, secrets
from ..host.errors import EXIT_OK
from ..host.screen import Screen, printable
from ..journal.journal import to_json
from ..journal.position import state_shown
from ..journal.run_folder import RunFolder, forked_from
from ..journal.summary import Follower, left_out
from ..runs.locks import is_live
from ..terminal.action_text import MARKS, failure_text, tone
from .stop import how_it_was_left

# Lines of an output that are shown; `--verbose` shows all.
MOST_LINES = 20
# Seconds between two looks at a journal that is followed.
INTERVAL = 0.1
_HIDDEN = frozenset(("process",))


class Teller:
    """Events to lines: a time, the state's iteration, and what happened."""

    def __init__(self, run: RunFolder, follower: Follower, screen: Screen, is_verbose: bool) -> None:
        self._run = run
        self._follower = follower
        self._screen = screen
        self._most = 1 << 60 if is_verbose else MOST_LINES
        self._is_verbose = is_verbose
        self._day = ""
        self._marks = MARKS[screen.unicode]

    def lines(self, event: dict[str, Any]) -> Iterator[str]:
        if event["event"] in _HIDDEN and not self._is_verbose:
            return
        day, _, moment = str(event.get("ts")).rstrip("Z").partition("T")
        if day != self._day:
            self._day = day
            yield self._screen.paint(f"{printable(day)} (UTC)", "bold")
        told = self._follower.whole({name: event[name] for name in event if name != "crc"})
        moment = self._screen.paint(printable(moment), "dim")
        first = True
        for line in self._told(event["event"], told):
            yield f"{moment if first else ' ' * 12}  {line}"
            first = False

    def _told(self, kind: str, event: dict[str, Any]) -> Iterator[str]:
        paint = self._screen.paint
        match kind:
            case "run_start":
                path = event.get("path")
                of = f"{event.get('program')}" + (f" ({path})" if path else "")
                parent = forked_from(event)
                how = f"shares the past of {parent['run']}, to effect {parent['at']}" if parent else "begins"
                yield paint(printable(f"run {event.get('run')} of {of} {how}"), "bold")
                for name, value in (event.get("overrides") or {}).items():
                    yield printable(f"  {name}: {_short(value)}")
            case "run_resume":
                where = f" in {event['state']}" if event.get("state") else ""
                yield paint(printable(f"run goes on{where}"), "bold")
                for sentence in event.get("lost") or ():
                    yield printable(f"  {sentence}")
            case "run_interrupted":
                where = f" in {event['state']}" if event.get("state") else ""
                yield paint(printable(f"interrupted{where}"), "yellow")
            case "run_end":
                yield from self._end(event)
            case "loop_start":
                yield printable(f"loop {event.get('loop')}")
            case "state_enter":
                yield paint(printable(f"[{event.get('iteration')}] {state_shown(event)}"), "bold")
            case "evaluate":
                verdict = str(event.get("verdict"))
                mark, style = tone(verdict)
                details = event.get("details")
                about = f" ({event.get('type')}: {_short(details)})" if details else f" ({event.get('type')})"
                yield paint(f"  {self._marks[mark]} {printable(verdict)}", style) + printable(about)
            case "route":
                yield printable(f"  {self._marks['to']} {event.get('to')}")
            case "handoff":
                yield printable(f"  hands over ({event.get('policy')}): {_short(event.get('text'))}")
            case "cycle":
                yield printable(f"cycle {event.get('cycle')}")
            case "log":
                yield from (printable(line) for line in str(event.get("message")).splitlines() or [""])
            case "loop_complete":
                whose = f"loop {event['loop']}" if "loop" in event else "loop"
                yield printable(f"{whose} ends in {event.get('final_state')}: {event.get('terminated_by')}")
            case "action_start":
                first, *more = str(event.get("action")).strip().splitlines() or [""]
                yield f"  #{event.get('seq')} $ {printable(first)}"
                yield from (f"       {printable(line)}" for line in more)
            case "action_complete":
                yield from self._result(event)
            case "effect_start":
                yield printable(f"  #{event.get('seq')} {event.get('kind')} {_short(event.get('args'))}")
            case "effect_complete":
                yield printable(f"  #{event.get('seq')} gave {_short(event.get('result'))}")
            case _:
                fields = {name: value for name, value in event.items() if name not in ("event", "ts")}
                yield printable(f"{kind} {_short(fields)}")

    def _end(self, event: dict[str, Any]) -> Iterator[str]:
        status = str(event.get("status"))
        style = {"success": "green", "limit": "yellow"}.get(status, "red")
        by = event.get("terminated_by")
        why = f" by {by}" if by not in (None, "terminal", "return", "error") else ""
        count = event.get("iterations")
        facts = f"{count} iteration{'' if count == 1 else 's'}, {duration(event.get('duration_ms') or 0)}"
        yield self._screen.paint(printable(f"run ends: {status}{why} ({facts})"), style)
        if event.get("value") is not None:
            yield printable(f"  value {_short(event['value'])}")
        error = event.get("error")
        if isinstance(error, dict):
            yield printable(f"  {error.get('kind')}: {error.get('message')}")

    def _result(self, event: dict[str, Any]) -> Iterator[str]:
        result = event.get("result")
        result = result if isinstance(result, dict) else {}
        for stream in ("output", "stderr"):
            yield from self._several(f"     {self._marks['bar']} ", str(result.get(stream) or ""))
        failed = failure_text({"duration_ms": 0, "exit_code": 0, **result})
        time_taken = duration(event.get("duration_ms") or 0)
        usage = result.get("usage")
        spent = ""
        if isinstance(usage, dict):
            usd = usage.get("usd")
            spent = f", {tokens:,} tokens" if (tokens := usage.get("tokens")) is not None else ""
            spent += f", {usd} USD" if usd is not None else ""
        text = printable(f"  #{event.get('seq')} {failed or 'exit 0'} ({time_taken}{spent})")
        yield self._screen.paint(text, "red" if failed else "")

    def _several(self, head: str, text: str) -> Iterator[str]:
        lines = text.rstrip("\n").splitlines() if text.strip() else []
        hidden = len(lines) - self._most
        if hidden > 0:
            yield f"{head}… {hidden} more lines; --verbose shows them"
            lines = lines[hidden:]
        for line in lines:
            yield head + printable(line.rpartition("\r")[2] or line)


def _short(value: Any) -> str:
    """A value in one line of moderate length."""
    if isinstance(value, dict):
        text = ", ".join(f"{name} {_short(item)}" for name, item in value.items() if item is not None)
    else:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = " ".join(text.split())
    return text if len(text) <= 160 else text[:159] + "…"


def tell(
    run: RunFolder,
    follow: bool,
    as_json: bool,
    is_verbose: bool,
    last: int | None,
    write: Callable[[str], None],
) -> int:
    """Write the events of a run; with `follow`, those that come until it ends or nobody runs it."""
    screen = Screen(sys.stdout)
    follower = Follower(run)
    teller = Teller(run, follower, screen, is_verbose)

    def text_of(event: dict[str, Any]) -> str:
        if as_json:
            told = follower.whole({name: value for name, value in event.items() if name != "crc"})
            return to_json(secrets.known.mask_all(told)).decode() + "\n"
        return "".join(line + "\n" for line in teller.lines(event))

    try:
        events = list(follower.events())
        has_ended = any(event["event"] == "run_end" for event in events[-1:])
        if not (as_json or is_verbose):
            events = [event for event in events if event["event"] not in _HIDDEN]
        if last is not None:
            events = events[len(events) - last :] if last < len(events) else events
        text = "".join(map(text_of, events))
        if text:
            write(text)
        alive = True
        while follow and alive and not has_ended:
            # In this order: who has let go of the lock has written all.
            alive = is_live(run)
            events = list(follower.events())
            text = "".join(map(text_of, events))
            if text:
                write(text)
            has_ended = any(event["event"] == "run_end" for event in events)
            if alive and not has_ended:
                clock.sleep(INTERVAL)
        if not alive and not has_ended:
            Screen(sys.stderr).write(f"{how_it_was_left(run)}\nResume with: llc resume {run.id}\n")
        if follower.damaged:
            Screen(sys.stderr).write(left_out(run.journal, follower.damaged))
    finally:
        follower.close()
    return EXIT_OK
