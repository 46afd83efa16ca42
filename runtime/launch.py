"""From a command to a driven run: `run` and `resume`, whatever the command line is made of.

Owns the order: program, world, folder and lock, journal, driver; and saying how it ended. Heavy
parts are imported where they are needed: a run of a cached loop imports neither the compiler nor
the command-line library.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from time import monotonic

from . import journal as journals
from . import locks, runs
from .display import Display, ProgressDisplay
from .driver import Driver, Outcome
from .errors import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, UserError
from .journal import Journal, JournalError, write_file
from .programs import load_expression, load_image, load_program
from .runs import ROOT
from .screen import Screen
from .signals import Signals
from .world import Interrupt, timestamp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..ir.diagnostics import CompileError, Diagnostic
    from ..vm.image import Image
    from .locks import Lock
    from .options import Values
    from .replay import Position
    from .runs import RunFolder
    from .world import WorldLike

_POLICIES = ("rerun", "fail", "ask")


def run(values: Values) -> int:
    """`llc run`; the exit code."""
    return _Command(values).guarded(_Command.run)


def resume(values: Values) -> int:
    """`llc resume`; the exit code."""
    return _Command(values).guarded(_Command.resume)


def outcome(values: Values) -> Outcome:
    """As `run`, but shows nothing, leaves signals alone and raises what goes wrong."""
    ended = _Command(values, is_silent=True).run()
    if ended is None:
        raise ValueError("a dry run has no outcome")
    return ended


class _Command:
    """One `run` or `resume`: where it shows what, and how it answers."""

    def __init__(self, values: Values, is_silent: bool = False) -> None:
        self.values = values
        self.is_silent = is_silent
        self.errors = Screen(None if is_silent else sys.stderr)
        self.screen = self.errors if values.json or is_silent else Screen(sys.stdout)
        self.image: Image | None = None
        self.folder: RunFolder | None = None
        self.begun = monotonic()

    # --- the two commands -----------------------------------------------------------------

    def run(self) -> Outcome | None:
        values = self.values
        if values.expression is not None:
            path = ""
            self.image = image = load_expression(values.expression, values, self.warn)
        else:
            path = runs.resolve(values.target, ROOT)
            self.image = image = load_program(path, values, self.warn)
        if values.dry_run:
            from .plan import dry_run

            Screen(sys.stdout).write(dry_run(image, values.json))
            return None
        world, refusals = self.world(values.script)
        about = {"program": image.name, "path": path}
        if values.script:
            about["script"] = os.path.abspath(values.script)
        begun = timestamp(world.time())
        scope = [] if values.script else image.meta["scope"]
        self.folder, lock = locks.start(ROOT, image.name, scope, {**about, "started_at": begun})
        folder = self.folder
        try:
            write_file(folder.image, image.to_bytes())
            journal = Journal.create(folder.journal, lambda: timestamp(world.time()))
            journal.write("run_start", self.start_fields(about), begun)
            journal.sync()
        except BaseException:
            folder.discard()
            lock.close()
            self.folder = None
            raise
        journals.sync_folder(folder.path)
        journals.sync_folder(os.path.dirname(folder.path))
        display = self.display(image)
        display.begin(folder.id, image.name)
        interrupt = Interrupt()
        from ..vm.machine import Machine

        driver = Driver(
            Machine(image), world, journal, folder, display, interrupt, begun=begun, refusals=refusals
        )
        return self.drive(driver.run, interrupt, world, journal, lock)

    def resume(self) -> Outcome | None:
        values = self.values
        if values.on_unknown not in (None, *_POLICIES):
            raise UserError("bad-option", f"--on-unknown is one of {', '.join(_POLICIES)}")
        self.folder = folder = runs.find(values.target, ROOT)
        if not os.path.exists(folder.image):
            raise UserError(
                "no-program",
                f"{folder.id} has no program.llb, so it cannot go on",
                f"its journal is {folder.journal}",
                EXIT_FAILURE,
            )
        self.image = image = load_image(folder.image)
        from ..vm.machine import Machine
        from .replay import History, replay

        about = {name: value for name, value in folder.about().items() if name not in ("run", "pid", "scope")}
        script = about.get("script")
        lock = locks.take_over(folder, [] if script else image.meta["scope"], about)
        history = History.load(folder.journal)
        if history.ended:
            lock.close()
            folder.finish()
            raise UserError(
                "run-ended", f"there is nothing to resume: {folder.id} has ended", exit_code=EXIT_FAILURE
            )
        world, refusals = self.world(script)
        machine = Machine(image)
        position = replay(machine, history, journals.Blobs(folder.outputs), world)
        for sentence in position.lost:
            self.warn(f"warning: {folder.journal}: {sentence}")
        policy = self.settle(position)
        kept = journals.set_aside(folder.journal, position.cut) if position.cut is not None else None
        if kept is not None:
            self.warn(f"note: what was cut from the journal is kept in {kept}")
        journal = Journal.append(folder.journal, lambda: timestamp(world.time()))
        progress = position.progress
        journal.write(
            "run_resume",
            {
                "state": progress.state,
                "iteration": progress.iteration,
                "unknown": policy,
                "lost": position.lost,
                "set_aside": kept,
            },
        )
        journal.sync()
        display = self.display(image)
        display.resume(folder.id, image.name, progress.state, progress.iteration)
        interrupt = Interrupt()
        driver = Driver(
            machine,
            world,
            journal,
            folder,
            display,
            interrupt,
            progress=progress,
            base_ms=history.active_ms,
            begun=history.begun,
            refusals=refusals,
        )
        answer = _UNKNOWN if policy == "fail" else None
        return self.drive(
            lambda: driver.run(position.outcome, position.notes, answer), interrupt, world, journal, lock
        )

    def drive(
        self, go: Callable[[], Outcome], interrupt: Interrupt, world: WorldLike, journal: Journal, lock: Lock
    ) -> Outcome:
        """Drive to the end and put everything away; a run that has ended goes to the history."""
        signals = None if self.is_silent else Signals(interrupt)
        if not self.is_silent:
            # What there is by now stays to the end (`entry`); only what the run makes is looked through.
            gc.freeze()
            gc.enable()
        try:
            if signals is not None:
                signals.take()
            ended = go()
            if ended.status != "interrupted" and self.folder is not None:
                self.folder.finish()
            return ended
        finally:
            world.close()
            try:
                journal.close()
            finally:
                lock.close()
                if signals is not None:
                    signals.give_back()
                interrupt.close()

    # --- parts ----------------------------------------------------------------------------

    def world(self, script: str | None) -> tuple[WorldLike, tuple[type[Exception], ...]]:
        """The world to perform in, and what it raises when it will not perform an effect."""
        if script is None:
            from .world import World

            return World(), ()
        from .script import NoRule, ScriptedWorld

        return ScriptedWorld.load(script), (NoRule,)

    def start_fields(self, about: dict[str, Any]) -> dict[str, Any]:
        from .. import __version__

        assert self.image is not None
        assert self.folder is not None
        given = {
            name: value
            for name in ("max_iterations", "no_llm", "llm_model", "context", "arguments")
            if (value := getattr(self.values, name))
        }
        return {
            "format": journals.FORMAT,
            "run": self.folder.id,
            "program": self.image.name,
            "program_hash": self.image.program_hash,
            "llc": __version__,
            "path": about["path"],
            **({"script": about["script"]} if "script" in about else {}),
            **({"overrides": given} if given else {}),
        }

    def display(self, image: Image) -> Display:
        if self.values.quiet:
            return Display()
        return ProgressDisplay(self.screen, image.meta["limits"].get("max_iterations"), self.values.verbose)

    def settle(self, position: Position) -> str | None:
        """End what is left of an effect that was cut off; what becomes of it, None where there is none."""
        from ..vm.machine import Effect

        recorded, effect = position.recorded, position.outcome
        if not isinstance(effect, Effect) or recorded is None or not recorded.started:
            return None
        assert self.folder is not None
        from .leftover import end_leftover, find_leaders

        effect_id = f"{self.folder.id}/{effect.seq}"
        for pid, begun in recorded.processes or find_leaders(effect_id):
            if end_leftover(pid, begun, effect_id):
                self.warn(f"note: what was still running of effect {effect.seq} (pid {pid}) has been ended")
        from ..ir.effects import EFFECTS

        if not EFFECTS[effect.kind].acts:
            return None
        policy = self.values.on_unknown or effect.args.get("on_unknown")
        if policy == "ask":
            return self.ask(effect)
        return "fail" if policy == "fail" else "rerun"

    def ask(self, effect: Any) -> str:
        """Ask the person what to do with an effect whose outcome is unknown."""
        what = str(effect.args.get("command") or effect.kind)
        shown = what if len(what) <= 200 else what[:200] + "…"
        if not (os.isatty(0) and os.isatty(2)):
            raise UserError(
                "unknown-outcome",
                f"it is not known whether `{shown}` did its work, and its state says to ask",
                "resume in a terminal, or say `--on-unknown rerun` or `--on-unknown fail`",
                EXIT_FAILURE,
            )
        self.errors.write(f"It is not known whether this did its work: {shown}\n")
        while True:
            self.errors.write("Run it again, let it fail, or stop here? [r/f/s] ")
            answer = sys.stdin.readline()
            match answer.strip().lower()[:1]:
                case "r":
                    return "rerun"
                case "f":
                    return "fail"
                case "s":
                    raise UserError("stopped", "not resumed", exit_code=EXIT_FAILURE)
            if not answer:
                raise UserError("stopped", "not resumed", exit_code=EXIT_FAILURE)

    # --- how it ended ---------------------------------------------------------------------

    def warn(self, text: str) -> None:
        self.errors.write(text + "\n")

    def guarded(self, action: Callable[[_Command], Outcome | None]) -> int:
        """Do it and answer; what the user or the system did wrong is shown, what we did is raised."""
        try:
            outcome = action(self)
        except KeyboardInterrupt:
            return self.refuse("interrupt", "interrupted", [], EXIT_INTERRUPTED)
        except UserError as error:
            self.show(_as_diagnostics(error))
            return self.refuse(error.id, error.message, [], error.exit_code, error.help)
        except JournalError as error:
            return self.refuse_journal(error)
        except RecursionError:
            raise
        except Exception as error:
            found = _compile_error(error)
            if found is None:
                self.refuse("internal", "internal error", [], EXIT_FAILURE)
                raise
            self.show(found.diagnostics, found.sources)
            count = sum(diagnostic.is_error for diagnostic in found.diagnostics)
            place = found.sources[0].path if found.sources else self.values.target or "the expression"
            message = f"{count} error{'' if count == 1 else 's'} in {place}"
            return self.refuse("invalid-loop", message, found.diagnostics, EXIT_USAGE)
        if outcome is None:
            return EXIT_OK
        if outcome.error is not None:
            self.show_error(outcome)
        if outcome.status == "interrupted":
            self.warn(f"Resume with: llc resume {outcome.run}")
        self.answer(outcome)
        return outcome.exit_code

    def refuse_journal(self, error: JournalError) -> int:
        help = None
        if self.folder is not None:
            help = f"nothing recorded is lost; when that is mended: llc resume {self.folder.id}"
        refusal = UserError("journal", error.message, help, EXIT_FAILURE)
        self.show(_as_diagnostics(refusal))
        return self.refuse("journal", error.message, [], EXIT_FAILURE, help)

    def refuse(
        self, kind: str, message: str, diagnostics: Any, exit_code: int, help: str | None = None
    ) -> int:
        """Answer for a run that did not come to an end, or did not begin."""
        status = "interrupted" if exit_code == EXIT_INTERRUPTED else "error"
        program = self.image.name if self.image is not None else None
        outcome = Outcome(self.folder.id if self.folder else None, program, "loop", status)
        outcome.terminated_by = "interrupt" if status == "interrupted" else "error"
        outcome.duration_ms = int((monotonic() - self.begun) * 1000)
        outcome.error = {"kind": kind, "message": message, "span": None, "help": help}
        if diagnostics:
            from ..ir.diagnostics import in_order, to_json

            outcome.error["diagnostics"] = [to_json(diagnostic) for diagnostic in in_order(diagnostics)]
        self.answer(outcome)
        return exit_code

    def answer(self, outcome: Outcome) -> None:
        """The one JSON object, where it was asked for."""
        if self.values.json:
            text = json.dumps(outcome.to_json(), ensure_ascii=False, default=str)
            Screen(sys.stdout).write_bytes((text + "\n").encode("utf-8", "replace"))
        elif outcome.kind != "loop" and outcome.value is not None and not self.values.quiet:
            self.screen.write(json.dumps(outcome.value, indent=2, ensure_ascii=False) + "\n")

    def show(self, diagnostics: Any, sources: Any = ()) -> None:
        from ..ir.diagnostics import render_all

        self.errors.write(render_all(diagnostics, sources, self.errors.color) + "\n")

    def show_error(self, outcome: Outcome) -> None:
        """The error a run ended with, at its place in the source."""
        from ..ir.diagnostics import Diagnostic
        from ..ir.spans import Source, Span

        error = outcome.error or {}
        span = Span(*outcome.place) if outcome.place else None
        sources = (
            [Source(source.path, source.sha256, source.text) for source in self.image.sources]
            if self.image
            else []
        )
        diagnostic = Diagnostic(
            str(error.get("kind")),
            str(error.get("message")),
            span,
            label="here" if span else "",
            help=error.get("help"),
        )
        self.show([diagnostic], sources)
        trace = error.get("backtrace") or []
        if len(trace) > 1:
            self.errors.write("".join(f"  {line}\n" for line in trace))


_UNKNOWN = {
    "output": "",
    "stderr": "",
    "exit_code": 1,
    "duration_ms": 0,
    "error": {"kind": "unknown-outcome", "message": "it was cut off, so its outcome is not known"},
}


def _compile_error(error: Exception) -> CompileError | None:
    from ..ir.diagnostics import CompileError

    return error if isinstance(error, CompileError) else None


def _as_diagnostics(error: UserError) -> list[Diagnostic]:
    from ..ir.diagnostics import Diagnostic

    return [Diagnostic(error.id, error.message, help=error.help)]
