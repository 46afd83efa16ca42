"""Writer of case files for people: short values on one line, texts of several lines as blocks.

Long texts are files of their own, in `<case>.outputs/`, named by the hash of their content.
"""

from __future__ import annotations

import json
import os.path
from collections.abc import Iterator
from typing import Any

from ...frontend.source.yaml_writer import Inline, Word, bare, entry
from ..host import files
from ..host.errors import Failure
from ..journal import journal as journals
from ..journal.codec import digest_only
from ..project import options
from .cases import FORMAT, OPTIONS, USUAL, Case, outputs_of
from .diff import ENDING
from .recording import Answer, Asked, Changed, Note, Recording

# A longer text is a file of its own; a value with deeper nesting is kept as JSON.
_LONGEST = 4096
_DEEPEST = 40
_LARGEST = 16 << 20


def write(case: Case) -> None:
    """Write a case and its texts. Raises JournalError, and UserError where it would be too large."""
    writer = _Writer(case)
    data = writer.text().encode("utf-8")
    if len(data) > _LARGEST:
        size = len(data) >> 20
        raise Failure(
            "case-too-large",
            f"the case would be {size} MiB, and a file of more than {_LARGEST >> 20} MiB is not read",
        )
    folder = outputs_of(case.path)
    blobs = journals.Blobs(folder)
    for text in writer.texts.values():
        blobs.store(text)
    journals.write_file(case.path, data, durable=False)
    _clear(folder, set(writer.texts))


def _clear(folder: str, kept: set[str]) -> None:
    """Remove texts that the case has no more."""
    try:
        names = files.listdir(folder)
    except OSError:
        return
    for file in names:
        if len(file) == 64 and file not in kept:
            files.unlink(os.path.join(folder, file))
    if not kept and not files.listdir(folder):
        files.rmdir(folder)


class _Writer:
    def __init__(self, case: Case) -> None:
        self.case = case
        self.texts: dict[str, str] = {}

    def text(self) -> str:
        case, recording = self.case, self.case.recording
        lines = ["# A run on record. `llc test` tells it again, `llc test --update` rewrites it."]
        head: dict[str, Any] = {"llc_case": FORMAT}
        if case.expression is not None:
            head["expression"] = case.expression
        else:
            head["source"] = bare(case.source)
        given = {name: value for name, value in case.options.items() if value}
        if given:
            head["options"] = {
                name: dict(value) if OPTIONS[name] == options.PAIR else _plain_option(value)
                for name, value in given.items()
            }
        if case.limits:
            head["limits"] = Inline(case.limits)
        if case.normalized:
            head["normalized"] = [Word(word) for word in case.normalized]
        if case.ticks:
            head["ticks"] = case.ticks
        for name, value in head.items():
            lines += entry(name, value, 0)
        items = [_item(event) for event in self.events()]
        lines.append("trace:" if items else "trace: []")
        lines += [line for item in items for line in item]
        if recording.end is not None:
            found = {name: self.value(recording.end[name]) for name in ENDING if name in recording.end}
            lines += entry("outcome", Inline(found), 0)
        return "\n".join(lines) + "\n"

    def events(self) -> Iterator[dict[str, Any]]:
        """The entries of the trace; a result stands with its effect where it is the next thing."""
        recording = self.case.recording
        order = list(arranged(recording))
        kinds = {event.seq: event.kind for event in recording.events if isinstance(event, Asked)}
        for at, event in enumerate(order):
            if isinstance(event, Note):
                yield {event.kind: Inline(self.map(event.fields))}
            elif isinstance(event, Asked):
                after = order[at + 1] if at + 1 < len(order) else None
                told: dict[str, Any] = {"effect": Word(event.kind)}
                if event.args:
                    told["args"] = _row(self.map(event.args))
                if isinstance(after, Answer) and after.seq == event.seq:
                    told["result"] = self.result(event.kind, after)
                yield told
            else:
                before = order[at - 1] if at else None
                if not (isinstance(before, Asked) and before.seq == event.seq):
                    yield {"result_of": event.seq, "result": self.result(kinds.get(event.seq, ""), event)}

    def result(self, kind: str, answer: Answer) -> dict[str, Any]:
        usual = USUAL.get(kind, {})
        packed: dict[str, Any] = answer.result
        missing = {name: None for name in usual if name not in packed}
        told = {
            name: value
            for name, value in packed.items()
            if name not in usual or value != usual[name] or type(value) is not type(usual[name])
        }
        null = {name: {"$json": "null"} for name in usual if name in packed and packed[name] is None}
        return _row({**self.map(told), **null, **missing})

    def map(self, fields: dict[str, Any]) -> dict[str, Any]:
        return {name: self.value(value) for name, value in fields.items()}

    def value(self, packed: Any) -> Any:
        """A value of a journal in the form of a case."""
        plain = self.case.recording.value(packed, "a value")
        if _is_plain_enough(plain):
            return self.shortened(journals.pack(plain, self.keep))
        return {"$json": json.dumps(plain)}

    def shortened(self, packed: Any) -> Any:
        """With references to long texts, and to those that YAML cannot hold."""
        if isinstance(packed, str):
            return self.keep(packed) if len(packed) > _LONGEST or not _is_fit(packed) else bare(packed)
        if isinstance(packed, list):
            return [self.shortened(item) for item in packed]
        if isinstance(packed, dict):
            return {name: self.shortened(item) for name, item in packed.items()}
        return packed

    def keep(self, text: str) -> dict[str, Any]:
        packed = digest_only(text)
        self.texts[packed["$blob"]] = text
        return packed


def _item(event: dict[str, Any]) -> list[str]:
    """The lines of one entry of the trace, behind its dash."""
    lines = [line for name, value in event.items() for line in entry(name, value, 4)]
    lines[0] = "  - " + lines[0][4:]
    return lines


def _plain_option(value: Any) -> Any:
    return bare(value) if isinstance(value, str) else value


def _row(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields on one line, unless one is a text of several."""
    several = any(isinstance(value, str) and "\n" in value[:-1] for value in fields.values())
    return fields if several else Inline(fields)


def _is_fit(text: str) -> bool:
    """Whether YAML can hold a text."""
    return "\0" not in text and not any("\ud800" <= ch <= "\udfff" for ch in text)


def _is_plain_enough(value: Any) -> bool:
    """Whether YAML can hold how deep a value is nested, and the names in it."""
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > _DEEPEST:
            return False
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                if not all(map(_is_fit, item)):
                    return False
                below += item.values()
            elif isinstance(item, list | tuple):
                below += item
        level = below
    return True


def arranged(recording: Recording) -> Iterator[Note | Asked | Answer]:
    """Events and answers of a recording in one order; `recording.given` says where the answers stand."""
    answers = iter(zip(recording.answers, recording.given, strict=True))
    answer, at = next(answers, (None, 0))
    for index, event in enumerate(recording.events):
        while answer is not None and at <= index:
            yield answer
            answer, at = next(answers, (None, 0))
        if not isinstance(event, Changed):  # a case is of one program
            yield event
    while answer is not None:
        yield answer
        answer, at = next(answers, (None, 0))
