"""Writer of case files, formatted for people: short values on one line, multi-line texts as blocks.

Long texts are separate files in `<case>.outputs/`, named by the hash of their content.
"""

from __future__ import annotations

import json
import os.path
from collections.abc import Iterator
from typing import Any

from ...frontend.source.yaml_writer import Inline, Word, as_word, entry
from ..host import files
from ..host.errors import Failure
from ..journal import journal as journals
from ..journal.codec import digest_only
from ..project import options
from .cases import DEFAULT_RESULTS, FORMAT, OPTIONS, Case, outputs_folder
from .diff import OUTCOME_FIELDS
from .recording import Answer, EffectRequest, Note, ProgramChange, Recording

# A longer text becomes a separate file.
_MAX_INLINE_CHARACTERS = 4096
# A value with deeper nesting is written as JSON.
_MAX_DEPTH = 40
_MAX_CASE_BYTES = 16 << 20


def write(case: Case) -> None:
    """Write a case and its texts. Raises JournalError, and UserError if the case is too large."""
    writer = _Writer(case)
    data = writer.text().encode("utf-8")
    if len(data) > _MAX_CASE_BYTES:
        size, limit = len(data) >> 20, _MAX_CASE_BYTES >> 20
        raise Failure("case-too-large", f"the case has {size} MiB; the limit is {limit} MiB")
    folder = outputs_folder(case.path)
    blobs = journals.Blobs(folder)
    for text in writer.texts.values():
        blobs.store(text)
    journals.write_file(case.path, data, durable=False)
    _remove_unused_texts(folder, set(writer.texts))


def _remove_unused_texts(folder: str, used: set[str]) -> None:
    try:
        names = files.listdir(folder)
    except OSError:
        return
    for file in names:
        if len(file) == 64 and file not in used:
            files.unlink(os.path.join(folder, file))
    if not used and not files.listdir(folder):
        files.rmdir(folder)


class _Writer:
    def __init__(self, case: Case) -> None:
        self.case = case
        self.texts: dict[str, str] = {}

    def text(self) -> str:
        case, recording = self.case, self.case.recording
        lines = ["# A recorded run. `llc test` replays it, `llc test --update` rewrites it."]
        head: dict[str, Any] = {"llc_case": FORMAT}
        if case.expression is not None:
            head["expression"] = case.expression
        else:
            head["source"] = as_word(case.source)
        options_set = {name: value for name, value in case.options.items() if value}
        if options_set:
            head["options"] = {
                name: dict(value) if OPTIONS[name] == options.PAIR else _plain_option(value)
                for name, value in options_set.items()
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
            outcome = {
                name: self.value(recording.end[name]) for name in OUTCOME_FIELDS if name in recording.end
            }
            lines += entry("outcome", Inline(outcome), 0)
        return "\n".join(lines) + "\n"

    def events(self) -> Iterator[dict[str, Any]]:
        """The entries of the trace; a result directly after its effect is part of the effect's entry."""
        recording = self.case.recording
        order = list(arranged(recording))
        kinds = {event.seq: event.kind for event in recording.events if isinstance(event, EffectRequest)}
        for index, event in enumerate(order):
            if isinstance(event, Note):
                yield {event.kind: Inline(self.map(event.fields))}
            elif isinstance(event, EffectRequest):
                after = order[index + 1] if index + 1 < len(order) else None
                effect: dict[str, Any] = {"effect": Word(event.kind)}
                if event.args:
                    effect["args"] = _row(self.map(event.args))
                if isinstance(after, Answer) and after.seq == event.seq:
                    effect["result"] = self.result(event.kind, after)
                yield effect
            else:
                before = order[index - 1] if index else None
                if not (isinstance(before, EffectRequest) and before.seq == event.seq):
                    yield {"result_of": event.seq, "result": self.result(kinds.get(event.seq, ""), event)}

    def result(self, kind: str, answer: Answer) -> dict[str, Any]:
        defaults = DEFAULT_RESULTS.get(kind, {})
        packed: dict[str, Any] = answer.result
        missing = {name: None for name in defaults if name not in packed}
        written = {
            name: value
            for name, value in packed.items()
            if name not in defaults or value != defaults[name] or type(value) is not type(defaults[name])
        }
        null = {name: {"$json": "null"} for name in defaults if name in packed and packed[name] is None}
        return _row({**self.map(written), **null, **missing})

    def map(self, fields: dict[str, Any]) -> dict[str, Any]:
        return {name: self.value(value) for name, value in fields.items()}

    def value(self, packed: Any) -> Any:
        """Convert a value from the form of the journal to the form of a case."""
        plain = self.case.recording.value(packed, "a value")
        if _is_plain_enough(plain):
            return self.shortened(journals.pack(plain, self.keep))
        return {"$json": json.dumps(plain)}

    def shortened(self, packed: Any) -> Any:
        """Replace long texts, and texts that YAML cannot represent, by references."""
        if isinstance(packed, str):
            is_inline = len(packed) <= _MAX_INLINE_CHARACTERS and _is_yaml_text(packed)
            return as_word(packed) if is_inline else self.keep(packed)
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
    """The lines of one entry of the trace, with its dash."""
    lines = [line for name, value in event.items() for line in entry(name, value, 4)]
    lines[0] = "  - " + lines[0][4:]
    return lines


def _plain_option(value: Any) -> Any:
    return as_word(value) if isinstance(value, str) else value


def _row(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields on one line, unless one of them is a multi-line text."""
    several = any(isinstance(value, str) and "\n" in value[:-1] for value in fields.values())
    return fields if several else Inline(fields)


def _is_yaml_text(text: str) -> bool:
    """Whether YAML can represent a text."""
    return "\0" not in text and not any("\ud800" <= ch <= "\udfff" for ch in text)


def _is_plain_enough(value: Any) -> bool:
    """Whether the nesting of a value is within `_MAX_DEPTH`, and YAML can represent its keys."""
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > _MAX_DEPTH:
            return False
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                if not all(map(_is_yaml_text, item)):
                    return False
                below += item.values()
            elif isinstance(item, list | tuple):
                below += item
        level = below
    return True


def arranged(recording: Recording) -> Iterator[Note | EffectRequest | Answer]:
    """Events and answers of a recording in one sequence, by `recording.events_before`."""
    answers = iter(zip(recording.answers, recording.events_before, strict=True))
    answer, position = next(answers, (None, 0))
    for index, event in enumerate(recording.events):
        while answer is not None and position <= index:
            yield answer
            answer, position = next(answers, (None, 0))
        if not isinstance(event, ProgramChange):  # a case has one program
            yield event
    while answer is not None:
        yield answer
        answer, position = next(answers, (None, 0))
