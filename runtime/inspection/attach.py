"""Looking at a run as if it had been started here: `llc attach`.

The events come from its journal, the running action's output from its live file; both go to the same
display that the run itself would have. What was on the screen before is not shown again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

from ...ir.effects import EFFECTS, NOTES
from ..execution.observer import Display
from ..host import clock
from ..host.context import TICK
from ..host.errors import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_OK
from ..host.screen import Screen
from ..journal.active_time import seconds
from ..journal.outcome import Outcome
from ..journal.run_folder import RunFolder
from ..journal.summary import Follower, Summary
from ..runs.locks import is_live
from ..terminal import live_tail
from ..terminal.progress import ProgressDisplay, limits_of
from .status import Look
from .stop import Holder, not_running

_STARTS = ("action_start", "effect_start")
_ENDS = ("action_complete", "effect_complete")


def _is_shown(kind: Any) -> bool:
    """Whether displays show effects of this kind."""
    return kind in EFFECTS and EFFECTS[kind].waits


class _Shown:
    """What is shown of one effect: its display, and how much of each stream."""

    def __init__(self, display: Display, kind: str) -> None:
        self.display = display
        self.kind = kind
        self.count = {"output": 0, "stderr": 0}


class Attached:
    """A display that is told what a journal says."""

    def __init__(self, run: RunFolder, follower: Follower, display: ProgressDisplay) -> None:
        self.run = run
        self.follower = follower
        self.display = display
        self.summary = Summary()
        self.effects: dict[int, _Shown] = {}

    def catch_up(self) -> None:
        """Take what is on record already, and show where the run is now."""
        for event in self.follower.events():
            self.summary.take(event)
        summary = self.summary
        if summary.state is not None:
            self.display.note("state_enter", {"state": summary.state, "iteration": summary.iteration})
        now = clock.time()
        for event in summary.pending.values():
            self._begin(event, len(summary.pending) > 1)
            begun = seconds(event.get("ts"))
            if begun is not None:
                self.display.since(max(0.0, now - begun))

    def take(self, event: dict[str, Any], later: Iterable[dict[str, Any]] = ()) -> None:
        """Show an event; `later` are those that are known to follow."""
        kind = event["event"]
        told = self.follower.whole(event)
        self.summary.take(event)
        if kind in _STARTS:
            self._begin(event, bool(self.effects) or _overlaps(event, later))
        elif kind in _ENDS:
            self._end(event.get("seq", 0), told.get("result") or {})
        elif kind in NOTES and NOTES[kind].is_shown:
            self.display.note(kind, told)

    def _begin(self, event: dict[str, Any], is_beside: bool) -> None:
        seq, kind = event.get("seq", 0), str(event.get("kind"))
        if not _is_shown(kind):
            return
        told = self.follower.whole(event)
        args = told.get("args")
        args = dict(args) if isinstance(args, dict) else {}
        if "action" in told:
            args["command"] = told["action"]
        display = self.display.beside(seq) if is_beside else self.display
        self.effects[seq] = _Shown(display, kind)
        display.effect_start(kind, args)

    def _end(self, seq: int, result: dict[str, Any]) -> None:
        shown = self.effects.pop(seq, None)
        if shown is None:
            return
        is_new = not any(shown.count.values())
        for stream, count in shown.count.items():
            text = str(result.get(stream) or "")
            # What the live file had is the beginning of it, unless it was cut or taken apart since, as what
            # an agent reports is.
            usage = result.get("usage")
            is_report = isinstance(usage, dict) and any(count is not None for count in usage.values())
            if is_new or not ("truncated" in result or is_report):
                rest = text[count:]
                if rest:
                    shown.display.output(stream, rest)
        shown.display.effect_end(shown.kind, result)

    def show_output(self) -> None:
        """Show what the running actions wrote since the last look."""
        for tail in live_tail.read(self.run.live):
            seq = tail.seq
            if seq is None:
                acting = [number for number, shown in self.effects.items() if shown.kind == tail.kind]
                seq = acting[0] if len(acting) == 1 else None
            shown = self.effects.get(seq) if seq is not None else None
            if shown is None:
                continue
            place = dict(tail.skipped)
            for stream, gap in place.items():
                lost = gap - shown.count.get(stream, 0)
                if lost > 0:
                    shown.display.output(stream, f"[{lost} characters of {stream} came before]\n")
                    shown.count[stream] = gap
            for stream, text in tail.parts:
                start = place.get(stream, 0)
                place[stream] = start + len(text)
                fresh = text[max(0, shown.count.get(stream, 0) - start) :]
                if fresh and place[stream] > shown.count.get(stream, 0):
                    shown.display.output(stream, fresh)
                    shown.count[stream] = place[stream]


def _overlaps(event: dict[str, Any], later: Iterable[dict[str, Any]]) -> bool:
    """Whether another effect that is shown begins before this one has its result."""
    for other in later:
        if other["event"] in _ENDS and other.get("seq") == event.get("seq"):
            return False
        if other["event"] in _STARTS and _is_shown(other.get("kind")):
            return True
    return False


def attach(run: RunFolder, stops: bool, is_verbose: bool) -> int:
    """Show a run until it ends; the exit code it ends with. Ctrl-C leaves it, or with `stops` stops it."""
    if not is_live(run):
        raise not_running(run)
    look = Look(run)
    about = look.status()
    look.close()
    screen, errors = Screen(sys.stdout), Screen(sys.stderr)
    display = ProgressDisplay(screen, limits_of(look.meta) if look.meta else {}, is_verbose)
    display.watch(run.id)
    follower = Follower(run)
    attached = Attached(run, follower, display)
    means = "stops it" if stops else "leaves it running"
    errors.write(f"Attached to {run.id} (pid {about['pid']}); Ctrl-C {means}\n")
    requests = 0
    try:
        attached.catch_up()
        while True:
            try:
                last = _follow(attached)
                break
            except KeyboardInterrupt:
                requests += 1
                if not stops:
                    display.detach()
                    errors.write(f"\nDetached; {run.id} goes on. Stop it with: llc stop {run.id}\n")
                    return EXIT_OK
                holder = Holder.find(run) if requests <= 2 else None
                if holder is None:
                    return EXIT_INTERRUPTED
                with holder:
                    holder.ask()
        return _ended(attached, last, errors, screen)
    finally:
        follower.close()


def _follow(attached: Attached) -> dict[str, Any] | None:
    """Show until the run ends; its last event, None where it was cut off."""
    run = attached.run
    while True:
        alive = is_live(run)
        events = list(attached.follower.events())
        for number, event in enumerate(events, 1):
            attached.take(event, events[number:])
            if event["event"] in ("run_end", "run_interrupted"):
                return event
        if not alive:
            return None
        attached.show_output()
        attached.display.tick()
        clock.sleep(TICK)


def _ended(attached: Attached, last: dict[str, Any] | None, errors: Screen, screen: Screen) -> int:
    run, summary = attached.run, attached.summary
    again = f"Resume with: llc resume {run.id}\n"
    if last is None:
        attached.display.detach()
        errors.write(f"\n{run.id} was cut off\n{again}")
        return EXIT_FAILURE
    told = attached.follower.whole(last)
    is_interrupted = last["event"] == "run_interrupted"
    kind = "loop" if any(state != "None" for state in summary.states) else "flow"
    here = {"final_state": summary.state, "iterations": summary.iteration}
    end = {**here, "status": "interrupted", **told}
    outcome = Outcome.of_event(run.id, str(summary.start.get("program")), kind, end)
    for shown in attached.effects.values():
        shown.display.effect_cut()
    attached.display.end(outcome)
    if outcome.error:
        errors.write(f"error[{outcome.error.get('kind')}]: {outcome.error.get('message')}\n")
    if is_interrupted:
        errors.write(again)
    elif kind == "flow" and outcome.value is not None:
        screen.write(json.dumps(outcome.value, indent=2, ensure_ascii=False) + "\n")
    return outcome.exit_code
