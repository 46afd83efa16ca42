"""`llc test`: replay of recorded cases with the current sources of their programs.

Owns the results of cases, the rewriting with `--update`, and the reports for people, scripts and CI (JUnit).
Performs no effects, and reads only the cases and the sources that they name.
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
from ..host.screen import counted
from . import case_reader, case_writer, cases, diff, diff_text
from .cases import Case
from .diff import MIN_TICKS, TICK_FACTOR, Comparison
from .make_case import compile_case, pack_map, recorded_events
from .re_execution import Endless, ReExecution
from .recording import Answer, EffectRequest, Recording, bounded

# Characters that XML cannot represent.
_INVALID_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@define
class CaseResult:
    """Result of one case.

    Args:
        path: the file of the case.
        result: `pass`, `fail`, `error` or `updated`.
        case: the case; None if it could not be read.
        image: its program; None if it could not be compiled.
        comparison: the comparison with the recording; None after an error.
        error: the reason why the case could not be replayed.
        obstacle: a sentence with the reason why the case could not be updated.
        seconds: the duration of the replay.
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
        """The reason why the case did not pass, without a final newline."""
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
        data: dict[str, Any] = {
            "case": self.path,
            "source": self.case.source if self.case is not None else None,
            "result": self.result,
            "obstacle": self.obstacle,
            "error": None,
        }
        if isinstance(self.error, CompileError):
            found = [to_json(diagnostic) for diagnostic in self.error.diagnostics]
            data["error"] = {"kind": "invalid", "message": str(found[0]["message"]), "diagnostics": found}
        elif self.error is not None:
            data["error"] = {"kind": self.error.id, "message": self.error.message, "diagnostics": []}
        if self.comparison is not None:
            data |= diff_text.as_json(self.comparison)
        return data


def run_cases(paths: list[str], pattern: str | None = None, update: bool = False) -> Iterator[CaseResult]:
    """Replay cases, in order. Raises UserError if there are none.

    paths: files and folders of cases. pattern: select cases by a part of their path. update: rewrite cases
    that fail.
    """
    found = cases.find_cases(paths)
    if not found:
        where = ", ".join(paths) or f"{cases.FOLDER}/"
        raise UserError(
            "no-cases", f"there are no recorded cases in {where}", "to create one: llc record RUN"
        )
    selected = [path for path in found if pattern is None or pattern.lower() in path.lower()]
    if not selected:
        count = counted(len(found), "case")
        raise UserError("no-cases", f"none of {count} has `{pattern}` in its path")
    for path in selected:
        started_at = clock.perf_counter()
        result = _run_case(path, update)
        result.seconds = clock.perf_counter() - started_at
        yield result


def _run_case(path: str, update: bool) -> CaseResult:
    case = image = None
    try:
        case = case_reader.read(path)
        image = compile_case(case)
        max_ticks = case.ticks * TICK_FACTOR + MIN_TICKS
        comparison = diff.compare(case.recording, image, max_ticks=max_ticks)
    except (CompileError, UserError) as error:
        return CaseResult(path, "error", case, image, error=error)
    except RecursionError:
        return CaseResult(
            path, "error", case, image, error=UserError("too-deep", "a value is nested too deep")
        )
    result = CaseResult(path, "pass" if comparison.difference is None else "fail", case, image, comparison)
    if update and comparison.difference is not None:
        _update(result, case, image, max_ticks)
    return result


# --- updating ---------------------------------------------------------------------------------


def _update(result: CaseResult, case: Case, image: Image, max_ticks: int) -> None:
    """Rewrite the expectations of a case, if its results suffice for the current program."""
    with bounded(case.recording.about):
        updated, obstacle = update_recording(case.recording, image, max_ticks)
    if updated is None:
        result.obstacle = obstacle
        return
    case_writer.write(attrs.evolve(case, recording=updated))
    result.result = "updated"


def update_recording(
    recording: Recording, image: Image, max_ticks: int | None = None
) -> tuple[Recording | None, str]:
    """Execute another program with the results of a recording; returns the new recording.

    Each effect gets the result of the recorded effect with the same number, or else of the first unused one,
    if kind and arguments are the same. Returns None and the reason if the program requests an effect that is
    not recorded.
    """
    known = _KnownResults(recording)
    updated, keep = recording.empty_copy()
    execution = ReExecution(image, max_ticks)
    waiting: dict[int, EffectRequest] = {}
    try:
        while True:
            events = list(recorded_events(execution, keep))
            for event in events:
                updated.add(event)
            waiting |= {event.seq: event for event in events if isinstance(event, EffectRequest)}
            if execution.stop is not None or not any(asked.kind != "exit" for asked in waiting.values()):
                break
            answer = known.take(waiting)
            if answer is None:
                if recording.end is None and known.is_exhausted:
                    return updated, ""
                asked = next(asked for asked in waiting.values() if asked.kind != "exit")
                return None, f"effect {asked.seq} is not recorded: {diff_text.describe(asked)}"
            del waiting[answer.seq]
            updated.give(answer)
            execution.give(answer.seq, updated.result(answer))
    except Endless:
        return None, "the program does not end and requests no further effect"
    updated.end = diff.ending(pack_map(execution.ending(), keep))
    return updated, ""


class _KnownResults:
    """The recorded results by effect; each is used once."""

    def __init__(self, recording: Recording) -> None:
        self.asked = {event.seq: event for event in recording.events if isinstance(event, EffectRequest)}
        self.answers = {answer.seq: (index, answer) for index, answer in enumerate(recording.answers)}
        self.unused = {seq: None for seq in self.asked if seq in self.answers}

    @property
    def is_exhausted(self) -> bool:
        return not self.unused

    def take(self, waiting: dict[int, EffectRequest]) -> Answer | None:
        """The earliest recorded result for a waiting effect; None if there is none."""
        candidates = [
            (self.answers[seq][0], seq, asked)
            for asked in waiting.values()
            if (seq := self.find_match(asked))
        ]
        if not candidates:
            return None
        _, seq, asked = min(candidates, key=lambda row: row[0])
        del self.unused[seq]
        return Answer(asked.seq, self.answers[seq][1].result)

    def find_match(self, asked: EffectRequest) -> int:
        """The number of the recorded effect whose result this effect can use; 0 for none."""
        for seq in (asked.seq, *self.unused):
            if seq in self.unused and diff.is_same(attrs.evolve(self.asked[seq], seq=asked.seq), asked):
                return seq
        # A model's reply is a valid example for another prompt; a command's output is not.
        recorded = self.asked.get(asked.seq)
        if recorded is None or asked.seq not in self.unused or recorded.kind != asked.kind:
            return 0
        return asked.seq if _is_model_call(asked) else 0


def _is_model_call(asked: EffectRequest) -> bool:
    """Whether an effect only calls a model, and no agent, which may change files."""
    return asked.kind in ("evaluate", "task") and not asked.args.get("agent")


# --- reports ----------------------------------------------------------------------------------


def exit_code(results: Iterable[CaseResult]) -> int:
    return EXIT_OK if all(result.is_good for result in results) else EXIT_FAILURE


def line(result: CaseResult, color: bool) -> str:
    """The result of a case for people, with the reason if it did not pass."""
    words = {"pass": "pass", "fail": "FAIL", "error": "ERROR", "updated": "updated"}
    shown = f"{words[result.result]} {clean(result.path)}"
    if result.result == "pass" and result.comparison is not None and not result.comparison.is_ended:
        shown += " (up to the end of its record)"
    detail = result.detail(color) if not result.is_good else ""
    return shown + "\n" + (f"{detail}\n\n" if detail else "")


def summary(results: list[CaseResult]) -> str:
    counts = {
        word: sum(result.result == word for result in results)
        for word in ("pass", "fail", "error", "updated")
    }
    labels = {
        "pass": "passed",
        "fail": "failed",
        "error": "error" if counts["error"] == 1 else "errors",
        "updated": "updated",
    }
    parts = [f"{count} {labels[word]}" for word, count in counts.items() if count]
    return f"{counted(len(results), 'case')}: {', '.join(parts)}\n"


def as_json(results: list[CaseResult]) -> dict[str, Any]:
    return {
        "passed": sum(result.is_good for result in results),
        "failed": sum(result.result == "fail" for result in results),
        "errors": sum(result.result == "error" for result in results),
        "cases": [result.to_json() for result in results],
    }


def junit(results: list[CaseResult]) -> bytes:
    """The report in the XML format of JUnit, which CI systems read."""
    from xml.etree import ElementTree

    failed = sum(result.result == "fail" for result in results)
    errors = sum(result.result == "error" for result in results)
    facts = {
        "name": "llc test",
        "tests": str(len(results)),
        "failures": str(failed),
        "errors": str(errors),
        "time": f"{sum(result.seconds for result in results):.3f}",
    }
    root = ElementTree.Element("testsuites", facts)
    suite = ElementTree.SubElement(root, "testsuite", {**facts, "skipped": "0"})
    for result in results:
        folder, _, name = result.path.rpartition("/")
        about = {
            "classname": _xml(folder or "."),
            "name": _xml(name),
            "file": _xml(result.path),
            "time": f"{result.seconds:.3f}",
        }
        element = ElementTree.SubElement(suite, "testcase", about)
        if result.is_good:
            continue
        detail = _xml(result.detail())
        kind = "failure" if result.result == "fail" else "error"
        words = {"message": detail.partition("\n")[0], "type": result.result}
        ElementTree.SubElement(element, kind, words).text = detail
    ElementTree.indent(root)
    text: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _xml(text: str) -> str:
    return _INVALID_XML.sub("�", text)
