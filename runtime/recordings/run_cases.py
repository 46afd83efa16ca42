"""`llc test`: replays recorded cases with the current text of their programs.

Owns which cases pass, what `--update` rewrites, and the reports for people, scripts and CI (JUnit). Nothing
is performed, and only the cases and the sources that they name are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import attrs

from ...ir.diagnostics import CompileError, Diagnostic, clean, render, render_all, to_json
from ...ir.records import define
from ...vm.code.image import Image
from ..host import clock
from ..host.errors import EXIT_FAILURE, EXIT_OK, UserError
from . import case_reader, case_writer, cases, diff, diff_text
from .cases import Case
from .diff import LEAST_TICKS, PATIENCE, Comparison
from .make_case import compile_case, happened, pack_map
from .re_execution import Endless, ReExecution
from .recording import Answer, Asked, Recording, bounded

# What XML cannot hold at all.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@define
class Tested:
    """What came of one case: `pass`, `fail`, `error` or `updated`.

    error: why it could not be told at all. obstacle: why it could not be updated, in words.
    """

    path: str
    result: str
    case: Case | None = None
    image: Image | None = None
    comparison: Comparison | None = None
    error: CompileError | UserError | None = None
    obstacle: str | None = None
    seconds: float = 0.0

    @property
    def is_good(self) -> bool:
        return self.result in ("pass", "updated")

    def detail(self, color: bool = False) -> str:
        """Why it did not pass, without a final newline."""
        lines = []
        if isinstance(self.error, CompileError):
            lines.append(render_all(self.error.diagnostics, self.error.sources, color))
        elif self.error is not None:
            lines.append(
                render(Diagnostic(self.error.id, self.error.message, help=self.error.help), {}, color)
            )
        elif (
            self.comparison is not None and self.image is not None and self.comparison.difference is not None
        ):
            lines.append(diff_text.as_text(self.comparison, diff_text.sources_of(self.image), color))
        if self.obstacle is not None:
            lines.append(f"  not updated: {clean(self.obstacle, 2000)}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        told: dict[str, Any] = {
            "case": self.path,
            "source": self.case.source if self.case is not None else None,
            "result": self.result,
            "obstacle": self.obstacle,
            "error": None,
        }
        if isinstance(self.error, CompileError):
            found = [to_json(diagnostic) for diagnostic in self.error.diagnostics]
            told["error"] = {"kind": "invalid", "message": str(found[0]["message"]), "diagnostics": found}
        elif self.error is not None:
            told["error"] = {"kind": self.error.id, "message": self.error.message, "diagnostics": []}
        if self.comparison is not None:
            told |= diff_text.as_json(self.comparison)
        return told


def tell_cases(paths: list[str], wanted: str | None = None, update: bool = False) -> Iterator[Tested]:
    """Tell each case again, in order. Raises UserError where there is none."""
    found = cases.find_cases(paths)
    if not found:
        where = ", ".join(paths) or f"{cases.FOLDER}/"
        raise UserError(
            "no-cases", f"there are no recorded cases in {where}", "`llc record RUN` makes one of a run"
        )
    chosen = [path for path in found if wanted is None or wanted.lower() in path.lower()]
    if not chosen:
        count = f"{len(found)} case{'' if len(found) == 1 else 's'}"
        raise UserError("no-cases", f"none of {count} has `{wanted}` in its path")
    for path in chosen:
        begun = clock.perf_counter()
        tested = _test_one(path, update)
        tested.seconds = clock.perf_counter() - begun
        yield tested


def _test_one(path: str, update: bool) -> Tested:
    case = image = None
    try:
        case = case_reader.read(path)
        image = compile_case(case)
        most = case.ticks * PATIENCE + LEAST_TICKS
        comparison = diff.compare(case.recording, image, most=most)
    except (CompileError, UserError) as error:
        return Tested(path, "error", case, image, error=error)
    except RecursionError:
        return Tested(path, "error", case, image, error=UserError("too-deep", "a value is nested too deep"))
    tested = Tested(path, "pass" if comparison.difference is None else "fail", case, image, comparison)
    if update and comparison.difference is not None:
        _update(tested, case, image, most)
    return tested


# --- updating ---------------------------------------------------------------------------------


def _update(tested: Tested, case: Case, image: Image, most: int) -> None:
    """Rewrite what a case expects, where the results it holds suffice for what the program does now."""
    with bounded(case.recording.about):
        told, obstacle = execute_again(case.recording, image, most)
    if told is None:
        tested.obstacle = obstacle
        return
    case_writer.write(attrs.evolve(case, recording=told))
    tested.result = "updated"


def execute_again(
    recording: Recording, image: Image, most: int | None = None
) -> tuple[Recording | None, str]:
    """What another program does over the results of a recording: each effect gets that of one like it.

    Like it is the one with its number, else the first that is not used yet, if kind and arguments are
    the same. None, and why, where the program asks for an effect that is not recorded.
    """
    known = _Known(recording)
    told, keep = recording.anew()
    execution = ReExecution(image, most)
    waiting: dict[int, Asked] = {}
    try:
        while True:
            events = list(happened(execution, keep))
            for event in events:
                told.add(event)
            waiting |= {event.seq: event for event in events if isinstance(event, Asked)}
            if execution.stop is not None or not any(asked.kind != "exit" for asked in waiting.values()):
                break
            answer = known.take(waiting)
            if answer is None:
                if recording.end is None and known.is_used_up:
                    return told, ""
                asked = next(asked for asked in waiting.values() if asked.kind != "exit")
                return None, f"effect {asked.seq} is not recorded: {diff_text.describe(asked)}"
            del waiting[answer.seq]
            told.give(answer)
            execution.give(answer.seq, told.result(answer))
    except Endless:
        return None, "the program runs on without asking for anything"
    told.end = diff.ending(pack_map(execution.ending(), keep))
    return told, ""


class _Known:
    """The results that were recorded, each for the effect it is of, and each to be used once."""

    def __init__(self, recording: Recording) -> None:
        self.asked = {event.seq: event for event in recording.events if isinstance(event, Asked)}
        self.answers = {answer.seq: (at, answer) for at, answer in enumerate(recording.answers)}
        self.unused = {seq: None for seq in self.asked if seq in self.answers}

    @property
    def is_used_up(self) -> bool:
        return not self.unused

    def take(self, waiting: dict[int, Asked]) -> Answer | None:
        """The result that comes first of those for effects that wait; None where there is none."""
        found = [
            (self.answers[seq][0], seq, asked) for asked in waiting.values() if (seq := self.like(asked))
        ]
        if not found:
            return None
        _, seq, asked = min(found, key=lambda row: row[0])
        del self.unused[seq]
        return Answer(asked.seq, self.answers[seq][1].result)

    def like(self, asked: Asked) -> int:
        """The number of the recorded effect whose result this one may have; 0 for none."""
        for seq in (asked.seq, *self.unused):
            if seq in self.unused and diff.is_same(attrs.evolve(self.asked[seq], seq=asked.seq), asked):
                return seq
        # What a model replied is an example, whatever it was asked; a command's output is not.
        was = self.asked.get(asked.seq)
        if was is not None and asked.seq in self.unused and was.kind == asked.kind and _asks_a_model(asked):
            return asked.seq
        return 0


def _asks_a_model(asked: Asked) -> bool:
    """Whether an effect only asks a model: not an agent, which changes files."""
    return asked.kind in ("evaluate", "task") and not asked.args.get("agent")


# --- reports ----------------------------------------------------------------------------------


def exit_code(results: Iterable[Tested]) -> int:
    return EXIT_OK if all(tested.is_good for tested in results) else EXIT_FAILURE


def line(tested: Tested, color: bool) -> str:
    """One case for people, and why where it did not pass."""
    words = {"pass": "pass", "fail": "FAIL", "error": "ERROR", "updated": "updated"}
    shown = f"{words[tested.result]} {clean(tested.path)}"
    if tested.result == "pass" and tested.comparison is not None and not tested.comparison.is_ended:
        shown += " (as far as it is recorded)"
    detail = tested.detail(color) if not tested.is_good else ""
    return shown + "\n" + (f"{detail}\n\n" if detail else "")


def summary(results: list[Tested]) -> str:
    counts = {
        word: sum(tested.result == word for tested in results)
        for word in ("pass", "fail", "error", "updated")
    }
    said = {"pass": "passed", "fail": "failed", "error": "in error", "updated": "updated"}
    parts = [f"{count} {said[word]}" for word, count in counts.items() if count]
    return f"{len(results)} case{'' if len(results) == 1 else 's'}: {', '.join(parts)}\n"


def as_json(results: list[Tested]) -> dict[str, Any]:
    return {
        "passed": sum(tested.is_good for tested in results),
        "failed": sum(tested.result == "fail" for tested in results),
        "errors": sum(tested.result == "error" for tested in results),
        "cases": [tested.to_json() for tested in results],
    }


def junit(results: list[Tested]) -> bytes:
    """The report in JUnit's XML, which CI systems read."""
    from xml.etree import ElementTree

    failed = sum(tested.result == "fail" for tested in results)
    errors = sum(tested.result == "error" for tested in results)
    facts = {
        "name": "llc test",
        "tests": str(len(results)),
        "failures": str(failed),
        "errors": str(errors),
        "time": f"{sum(tested.seconds for tested in results):.3f}",
    }
    root = ElementTree.Element("testsuites", facts)
    suite = ElementTree.SubElement(root, "testsuite", {**facts, "skipped": "0"})
    for tested in results:
        folder, _, name = tested.path.rpartition("/")
        about = {
            "classname": _xml(folder or "."),
            "name": _xml(name),
            "file": _xml(tested.path),
            "time": f"{tested.seconds:.3f}",
        }
        element = ElementTree.SubElement(suite, "testcase", about)
        if tested.is_good:
            continue
        detail = _xml(tested.detail())
        kind = "failure" if tested.result == "fail" else "error"
        words = {"message": detail.partition("\n")[0], "type": tested.result}
        ElementTree.SubElement(element, kind, words).text = detail
    ElementTree.indent(root)
    text: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _xml(text: str) -> str:
    return _NOT_XML.sub("�", text)
