"""`llc attach`: the progress display of a run that another process executes.

Its events come from the journal, and the output of running actions from the live file. Earlier progress is
not shown.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable
from typing import Any

from ...ir.effects import EFFECTS, NOTES
from ..execution.observer import Display
from ..host import clock
from ..host.effect_context import TICK
from ..host.errors import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_OK
from ..host.screen import Screen
from ..journal.codec import json_text
from ..journal.events import (
    EffectFinished,
    EffectStarted,
    Event,
    NoteEvent,
    RunEnd,
    RunInterrupted,
    StateEnter,
)
from ..journal.outcome import Outcome, headline
from ..journal.run_folder import RunFolder
from ..journal.run_history import INTERRUPTED, RunHistory
from ..project.limits import iteration_limits
from ..runs.follower import Follower, follow
from ..runs.lookup import how_to_resume
from ..runs.run_lock import is_live
from ..terminal import live_tail
from ..terminal.progress import ProgressDisplay
from .status import RunView
from .stop import Holder, not_running

# Maximum length of the end of an output that is compared with an agent's report.
_COMPARED_CHARACTERS = 4096


def _is_shown(kind: str) -> bool:
    """Whether displays show effects of this kind."""
    return kind in EFFECTS and EFFECTS[kind].waits


class _EffectView:
    """An effect on the screen. count: characters of each stream that are shown."""

    def __init__(self, display: Display, kind: str) -> None:
        self.display = display
        self.kind = kind
        self.count = {"output": 0, "stderr": 0}
        self._last = {"output": "", "stderr": ""}

    def show(self, stream: str, text: str) -> None:
        self.display.output(stream, text)
        self._last[stream] = (self._last[stream] + text)[-_COMPARED_CHARACTERS:]

    def show_report(self, stream: str, text: str) -> None:
        """Show a report that was extracted from the output, without the part that the output ends with."""
        shown, text = self._last[stream].rstrip(), text.rstrip()
        if not shown.endswith(text):
            overlap = next(
                (n for n in range(min(len(shown), len(text)), 0, -1) if shown.endswith(text[:n])), 0
            )
            self.show(stream, ("\n" if shown and not overlap else "") + text[overlap:] + "\n")


class Attached:
    """Feeds the journal and the live file of a run to a display."""

    def __init__(
        self, run: RunFolder, history: RunHistory, follower: Follower, display: ProgressDisplay
    ) -> None:
        self.run = run
        self.follower = follower
        self.display = display
        self.history = history
        self.effects: dict[int, _EffectView] = {}

    def catch_up(self) -> None:
        """Fold the events up to now, and show the current position of the run."""
        for event in self.follower.events():
            self.history.add(event)
        history = self.history
        if history.state is not None:
            entered = StateEnter(state=history.state, iteration=history.iteration)
            self.display.note(entered.name, entered.wire)
        now = clock.time()
        for effect in history.pending.values():
            if effect.start is None:
                continue
            self._begin(effect.start, len(history.pending) > 1)
            started = effect.start.moment
            if started is not None:
                self.display.since(max(0.0, now - started))

    def show_event(self, event: Event, later: Iterable[Event] = ()) -> None:
        """Show an event; `later` are the known events after it."""
        self.history.add(event)
        match event:
            case EffectStarted():
                self._begin(event, bool(self.effects) or _overlaps(event, later))
            case EffectFinished(seq=seq, result=result):
                self._end(seq, self.follower.expand(result) or {})
            case NoteEvent() if event.name in NOTES and NOTES[event.name].is_shown:
                self.display.note(event.name, self.follower.expand(event.wire))

    def _begin(self, event: EffectStarted, is_parallel: bool) -> None:
        if not _is_shown(event.kind):
            return
        display = self.display.concurrent(event.seq) if is_parallel else self.display
        self.effects[event.seq] = _EffectView(display, event.kind)
        display.effect_start(event.kind, self.follower.expand(event.arguments))

    def _end(self, seq: int, result: dict[str, Any]) -> None:
        shown = self.effects.pop(seq, None)
        if shown is None:
            return
        is_first_output = not any(shown.count.values())
        for stream, count in shown.count.items():
            text = str(result.get(stream) or "")
            # The live file contained the beginning of the text, unless the result was truncated or is the
            # report that was extracted from an agent's output.
            usage = result.get("usage")
            is_report = isinstance(usage, dict) and any(amount is not None for amount in usage.values())
            rest = text[count:]
            if text and is_report and not is_first_output:
                shown.show_report(stream, text)
            elif rest and (is_first_output or "truncated" not in result):
                shown.show(stream, rest)
        shown.display.effect_end(shown.kind, result)

    def show_output(self) -> None:
        """Show the output of running actions since the last call."""
        for tail in live_tail.read(self.run.live):
            seq = tail.seq
            if seq is None:
                running = [number for number, shown in self.effects.items() if shown.kind == tail.kind]
                seq = running[0] if len(running) == 1 else None
            shown = self.effects.get(seq) if seq is not None else None
            if shown is None:
                continue
            offsets = dict(tail.skipped)
            for stream, skipped in offsets.items():
                missed = skipped - shown.count.get(stream, 0)
                if missed > 0:
                    shown.display.output(stream, f"[{missed} earlier characters of {stream} not shown]\n")
                    shown.count[stream] = skipped
            for stream, text in tail.parts:
                start = offsets.get(stream, 0)
                offsets[stream] = start + len(text)
                fresh = text[max(0, shown.count.get(stream, 0) - start) :]
                if fresh and offsets[stream] > shown.count.get(stream, 0):
                    shown.show(stream, fresh)
                    shown.count[stream] = offsets[stream]


def _overlaps(event: EffectStarted, later: Iterable[Event]) -> bool:
    """Whether another effect that displays show starts before this effect has its result."""
    for other in later:
        if isinstance(other, EffectFinished) and other.seq == event.seq:
            return False
        if isinstance(other, EffectStarted) and _is_shown(other.kind):
            return True
    return False


def attach(run: RunFolder, stops: bool, is_verbose: bool, ask: Callable[[str], object] | None = None) -> int:
    """Show a run until it ends; returns its exit code.

    stops: Ctrl-C stops the run instead of detaching from it. ask(run): requests a stop of a run on another
    machine; None for a run of this machine.
    """
    if not is_live(run):
        raise not_running(run)
    view = RunView(run)
    status = view.status()
    view.close()
    screen, errors = Screen(sys.stdout), Screen(sys.stderr)
    display = ProgressDisplay(screen, iteration_limits(view.meta) if view.meta else {}, is_verbose)
    display.watch(run.id)
    history, follower = follow(run)
    attached = Attached(run, history, follower, display)
    means = "stops it" if stops else "leaves it running"
    where = f" (pid {status['pid']})" if ask is None else ""
    errors.write(f"Attached to {run.id}{where}; Ctrl-C {means}\n")
    if status["kept"]:
        take_over = f"to take over the action and show its output: llc resume {run.id}"
        errors.write(f"note: the process of the run has died, and its action continues; {take_over}\n")
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
                    errors.write(f"\nDetached; {run.id} is still running. Stop it with: llc stop {run.id}\n")
                    return EXIT_OK
                if ask is not None and requests <= 2:
                    ask(run.id)
                    continue
                holder = Holder.find(run) if requests <= 2 else None
                if holder is None:
                    return EXIT_INTERRUPTED
                with contextlib.closing(holder):
                    holder.ask()
        return _ended(attached, last, errors, screen)
    finally:
        follower.close()


def _follow(attached: Attached) -> RunEnd | RunInterrupted | None:
    """Show the run until it ends; returns its last event, None after a crash."""
    run = attached.run
    while True:
        alive = is_live(run)
        events = list(attached.follower.events())
        for number, event in enumerate(events, 1):
            attached.show_event(event, events[number:])
            if isinstance(event, RunEnd | RunInterrupted):
                return event
        if not alive:
            return None
        attached.show_output()
        attached.display.tick()
        clock.sleep(TICK)


def _ended(attached: Attached, last: RunEnd | RunInterrupted | None, errors: Screen, screen: Screen) -> int:
    """Show the end of the run; returns its exit code."""
    run, history = attached.run, attached.history
    resume_hint = f"{how_to_resume(run.id)}\n"
    if last is None:
        attached.display.detach()
        errors.write(f"\n{run.id} crashed\n{resume_hint}")
        return EXIT_FAILURE
    kind = "loop" if history.steps else "flow"
    here = {"final_state": history.state, "iterations": history.iteration, "status": INTERRUPTED}
    end = {**here, **attached.follower.expand(last.wire)}
    program = history.start.program if history.start else run.name
    outcome = Outcome.of_event(run.id, program, kind, end)
    for shown in attached.effects.values():
        shown.display.effect_cut()
    # A checkpoint of an earlier version has no history.
    if history.checkpoint is None or history.checkpoint.is_whole:
        attached.display.set_used(history.used.as_usage())
    attached.display.end(outcome)
    if outcome.error:
        message, help = headline(outcome.error)
        help = f" = help: {help}\n" if help else ""
        errors.write(f"error[{outcome.error.get('kind')}]: {message}\n{help}")
    if isinstance(last, RunInterrupted):
        errors.write(resume_hint)
    elif kind == "flow" and outcome.value is not None:
        screen.write(json_text(outcome.value, indent=2) + "\n")
    return outcome.exit_code
