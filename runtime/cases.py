"""Recorded cases: a run as a file that people read and `llc test` tells again; `spec/testing.md`.

Owns the format, both ways. A case is untrusted input: whatever is wrong with one is said at its place.
Long texts stand beside it, in `<case>.outputs/`, by the hash of their content.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import attrs

from ..frontend.documents import Document, Mapping, Node, Scalar, Sequence, read_document, read_source
from ..frontend.yaml_text import Inline, Word, bare, entry
from ..ir.diagnostics import CompileError, suggest
from . import journal as journals
from . import options, runs
from .difference import ENDING, digest_only
from .errors import EXIT_FAILURE, UserError
from .options import RUN, Values
from .recorded import Answer, Asked, Changed, Note, Recording, given_options, unpacked

FORMAT = 1
FOLDER = os.path.join(runs.LOOPS, "tests")
SUFFIXES = (".yaml", ".yml")
# What of a record is made the same wherever it was made, in this order.
NORMALIZED = ("times", "texts")
_KEYS = ("llc_case", "source", "expression", "options", "limits", "normalized", "ticks", "trace", "outcome")
_LIMITS = ("fuel", "depth", "size")
_OPTIONS = {**{row.name: row.kind for row in options.OVERRIDES}, "default_model": options.TEXT}
_EFFECT_KEYS = ("effect", "args", "result")
# Fields of a result that go without saying, by their value; null says that there is none.
_USUAL: dict[str, dict[str, Any]] = {
    "shell": {"output": "", "stderr": "", "exit_code": 0, "duration_ms": 0, "elapsed_ms": 0},
    "agent": {"output": "", "stderr": "", "exit_code": 0, "duration_ms": 0, "elapsed_ms": 0},
    "ask": {"stderr": "", "exit_code": 0, "duration_ms": 0, "elapsed_ms": 0},
    "evaluate": {"duration_ms": 0, "elapsed_ms": 0},
    "sleep": {"elapsed_ms": 0},
}
# A text longer than this stands beside the case; a value nested deeper is kept as JSON.
_LONGEST = 4096
_DEEPEST = 40
_LARGEST = 16 << 20


@attrs.define
class Case:
    """A recorded case. path: its file. source: the loop it tests, or '' where it is an `expression`.

    options: as in `run_start`, and `default_model`. ticks: what it used when it was recorded. limits:
    as in `run_start`.
    """

    path: str
    source: str
    expression: str | None
    options: dict[str, Any]
    normalized: tuple[str, ...]
    ticks: int
    recording: Recording
    limits: dict[str, int] = attrs.Factory(dict)

    @property
    def name(self) -> str:
        return os.path.splitext(os.path.basename(self.path))[0]

    def values(self) -> Values:
        """The options to compile its source with."""
        return Values(RUN, self.source, expression=self.expression, **given_options(self.options))


def outputs_of(path: str) -> str:
    """The folder for the long texts of the case at `path`."""
    return os.path.splitext(path)[0] + ".outputs"


# --- reading ----------------------------------------------------------------------------------


def read(path: str) -> Case:
    """The case in a file; CompileError with every problem found in it."""
    return _Reader(read_document(read_source(path))).case()


class _Reader:
    def __init__(self, document: Document) -> None:
        self.document = document
        self.path = document.source.path
        self.outputs = journals.Blobs(outputs_of(self.path))
        self.texts: dict[str, str] = {}
        self.kinds: dict[int, str] = {}
        self.answered: set[int] = set()

    def case(self) -> Case:
        document = self.document
        root = document.root
        recording = Recording(self.path, {}, self.fetch)
        case = Case(self.path, "", None, {}, (), 0, recording)
        if isinstance(root, Mapping) and self.is_known(root):
            found = dict(self.entries(root, _KEYS, "a case"))
            self.settle_source(case, found, root)
            if "options" in found:
                case.options = self.options(found["options"])
            if "limits" in found:
                case.limits = recording.about["limits"] = self.limits(found["limits"])
            if "normalized" in found:
                case.normalized = tuple(self.words(found["normalized"], NORMALIZED))
            if "ticks" in found:
                case.ticks = self.count(found["ticks"], "ticks")
            if "trace" not in found:
                document.fail("missing-key", "a case has a `trace`", document.span_at(0, 0))
            elif not isinstance(found["trace"], Sequence):
                self.wrong(found["trace"], "trace", "a list of events")
            else:
                for node in found["trace"].items:
                    self.event(node, recording)
            if "outcome" in found:
                recording.end = self.outcome(found["outcome"])
        elif not document.diagnostics and not isinstance(root, Mapping):
            document.fail("not-a-case", "a case is a mapping with `llc_case`", document.span_at(0, 0))
        if document.diagnostics:
            raise CompileError(document.diagnostics, [document.source])
        return case

    def is_known(self, root: Mapping) -> bool:
        """Whether this llc reads the format; what is wrong is reported."""
        if "llc_case" not in root.entries:
            place = self.document.span_at(root.start, root.start)
            help = f"it begins with `llc_case: {FORMAT}`; `llc record` makes one"
            self.document.fail("not-a-case", "this is no recorded case", place, help=help)
            return False
        node = root.entries["llc_case"][1]
        version = self.document.plain(node)
        if version != FORMAT or type(version) is not int:
            shown = node.text if isinstance(node, Scalar) else "this"
            message = f"a case of format {shown} cannot be read; this llc reads {FORMAT}"
            self.document.fail("unsupported-format", message, self.document.span(node))
            return False
        return True

    # --- parts --------------------------------------------------------------------------------

    def entries(self, node: Mapping, known: tuple[str, ...], what: str) -> Iterator[tuple[str, Node]]:
        """The entries of a mapping; unknown keys are reported."""
        for name, (key, value) in node.entries.items():
            if name in known:
                yield name, value
            else:
                help = suggest(name, known, "it may have")
                self.document.fail(
                    "unknown-key", f"{what} has no `{name}`", self.document.span(key), help=help
                )

    def wrong(self, node: Node, name: str, wanted: str) -> None:
        self.document.fail("wrong-type", f"`{name}` is {wanted}", self.document.span(node), "not this")

    def text(self, node: Node, name: str) -> str:
        if isinstance(node, Scalar) and isinstance(node.value, str):
            return node.value
        self.wrong(node, name, "a text")
        return ""

    def count(self, node: Node, name: str) -> int:
        value = self.document.plain(node)
        if type(value) is int and value >= 0:
            return value
        self.wrong(node, name, "a whole number from 0")
        return 0

    def words(self, node: Node, known: tuple[str, ...]) -> Iterator[str]:
        if not isinstance(node, Sequence):
            self.wrong(node, "normalized", "a list of words")
            return
        for item in node.items:
            word = self.text(item, "normalized")
            if word in known:
                yield word
            elif word:
                help = suggest(word, known, "it may be")
                self.document.fail(
                    "unknown-word", f"nothing is called `{word}`", self.document.span(item), help=help
                )

    def settle_source(self, case: Case, found: dict[str, Node], root: Mapping) -> None:
        if ("source" in found) == ("expression" in found):
            place = self.document.span_at(root.start, root.start)
            self.document.fail("missing-key", "a case has either a `source` or an `expression`", place)
        elif "source" in found:
            case.source = self.text(found["source"], "source")
            if not case.source or "\0" in case.source:
                self.wrong(found["source"], "source", "the path of a loop")
        else:
            case.expression = self.text(found["expression"], "expression")

    def options(self, node: Node) -> dict[str, Any]:
        if not isinstance(node, Mapping):
            self.wrong(node, "options", "a mapping")
            return {}
        return {
            name: self.option(name, value) for name, value in self.entries(node, tuple(_OPTIONS), "`options`")
        }

    def limits(self, node: Node) -> dict[str, int]:
        if not isinstance(node, Mapping):
            self.wrong(node, "limits", "a mapping")
            return {}
        return {name: self.count(value, name) for name, value in self.entries(node, _LIMITS, "`limits`")}

    def option(self, name: str, node: Node) -> Any:
        kind = _OPTIONS[name]
        if kind == options.COUNT:
            return self.count(node, name) or None
        if kind == options.FLAG:
            return self.document.plain(node) is True
        if kind == options.PAIR:
            return tuple(self.pairs(node, name))
        if kind == options.TEXT:
            return self.text(node, name)
        if not isinstance(node, Sequence):
            self.wrong(node, name, "a list of texts")
            return ()
        return tuple(self.text(item, name) for item in node.items)

    def pairs(self, node: Node, name: str) -> Iterator[tuple[str, str]]:
        if not isinstance(node, Mapping):
            self.wrong(node, name, "a mapping from names to texts")
            return
        for key, (_, value) in node.entries.items():
            yield key, self.text(value, key)

    def outcome(self, node: Node) -> dict[str, Any] | None:
        if isinstance(node, Scalar) and node.value is None:
            return None
        if not isinstance(node, Mapping):
            self.wrong(node, "outcome", "a mapping")
            return None
        return {name: self.value(value) for name, value in self.entries(node, ENDING, "an outcome")}

    # --- the trace ----------------------------------------------------------------------------

    def event(self, node: Node, recording: Recording) -> None:
        if not isinstance(node, Mapping) or not node.entries:
            self.wrong(node, "trace", "a list of mappings")
        elif "effect" in node.entries:
            self.effect(dict(self.entries(node, _EFFECT_KEYS, "an effect")), recording)
        elif "result_of" in node.entries:
            found = dict(self.entries(node, ("result_of", "result"), "a result"))
            seq = self.count(found["result_of"], "result_of")
            if seq not in self.kinds or seq in self.answered:
                state = "has its result already" if seq in self.answered else "has not been asked for here"
                self.document.fail(
                    "no-such-effect", f"effect {seq} {state}", self.document.span(found["result_of"])
                )
            else:
                self.answer(seq, found.get("result"), node, recording)
        elif len(node.entries) == 1:
            ((kind, (_, fields)),) = node.entries.items()
            if not isinstance(fields, Mapping):
                self.wrong(fields, kind, "a mapping")
                return
            recording.events.append(Note(kind, self.map(fields)))
        else:
            names = ", ".join(f"`{name}`" for name in list(node.entries)[:4])
            self.document.fail(
                "not-an-event",
                f"an event is a note by its kind, an `effect` or a `result_of`, not {names}",
                self.document.span(node),
            )

    def effect(self, found: dict[str, Node], recording: Recording) -> None:
        seq = len(self.kinds) + 1
        kind = self.kinds[seq] = self.text(found["effect"], "effect")
        args: dict[str, Any] = {}
        if "args" in found:
            if isinstance(found["args"], Mapping):
                args = self.map(found["args"])
            else:
                self.wrong(found["args"], "args", "a mapping")
        recording.events.append(Asked(seq, kind, args))
        if "result" in found:
            self.answer(seq, found["result"], found["result"], recording)

    def answer(self, seq: int, node: Node | None, at: Node, recording: Recording) -> None:
        self.answered.add(seq)
        if not isinstance(node, Mapping):
            self.wrong(node if node is not None else at, "result", "a mapping")
            return
        result = _USUAL.get(self.kinds[seq], {}) | self.map(node)
        for name in _USUAL.get(self.kinds[seq], {}):
            given = node.entries.get(name)
            if given is not None and isinstance(given[1], Scalar) and given[1].value is None:
                del result[name]
        recording.give(Answer(seq, result))

    # --- values -------------------------------------------------------------------------------

    def map(self, node: Mapping) -> dict[str, Any]:
        """A mapping whose values are as in a journal."""
        return {name: self.value(value) for name, (_, value) in node.entries.items()}

    def value(self, node: Node) -> Any:
        """A value as in a journal; what cannot be read is reported, and null."""
        try:
            plain = unpacked(self.revive(node), self.find)
        except (journals.BlobError, ValueError, RecursionError) as error:
            message = (
                str(error) if isinstance(error, journals.BlobError) else "this cannot be read as a value"
            )
            self.document.fail("bad-value", message, self.document.span(node))
            return None
        return journals.pack(plain, self.keep)

    def revive(self, node: Node) -> Any:
        """A node as it is in a journal; `$json` is read. ValueError for a form that there is not."""
        if isinstance(node, Scalar):
            return node.value
        if isinstance(node, Sequence):
            return [self.revive(item) for item in node.items]
        inner = node.entries["$map"][1] if list(node.entries) == ["$map"] else None
        if isinstance(inner, Mapping):
            return {"$map": {name: self.revive(value) for name, (_, value) in inner.entries.items()}}
        plain = {name: self.revive(value) for name, (_, value) in node.entries.items()}
        match plain:
            case {"$json": str(text), **rest} if not rest:
                # As in a journal too: what `$json` holds may look like one of its forms.
                return journals.pack(json.loads(text), self.keep)
            case (
                {"$blob": str(), "size": int(), **rest}
                | {"$float": str(), **rest}
                | {"$secret": list(), **rest}
            ) if not rest:
                return plain
        if any(name.startswith("$") for name in plain):
            raise ValueError("no form of a value")
        return plain

    def keep(self, text: str) -> dict[str, Any]:
        packed = digest_only(text)
        self.texts[packed["$blob"]] = text
        return packed

    def find(self, name: str, size: int) -> str:
        return self.texts[name] if name in self.texts else self.outputs.fetch(name, size)

    def fetch(self, name: str, size: int) -> str:
        text = self.texts.get(name)
        if text is None:
            raise journals.BlobError(f"recorded output {name[:12]}… is missing")
        return text


# --- writing ----------------------------------------------------------------------------------


def write(case: Case) -> None:
    """Write a case and the texts beside it. JournalError; UserError where it would be too large."""
    writer = _Writer(case)
    data = writer.text().encode("utf-8")
    if len(data) > _LARGEST:
        size = len(data) >> 20
        raise UserError(
            "case-too-large",
            f"the case would be {size} MiB, and a file of more than {_LARGEST >> 20} MiB is not read",
            exit_code=EXIT_FAILURE,
        )
    folder = outputs_of(case.path)
    blobs = journals.Blobs(folder)
    for text in writer.beside.values():
        blobs.store(text)
    journals.write_file(case.path, data, durable=False)
    _clear(folder, set(writer.beside))


def _clear(folder: str, kept: set[str]) -> None:
    """Remove texts that the case has no more."""
    try:
        files = os.listdir(folder)
    except OSError:
        return
    for file in files:
        if len(file) == 64 and file not in kept:
            os.unlink(os.path.join(folder, file))
    if not kept and not os.listdir(folder):
        os.rmdir(folder)


class _Writer:
    def __init__(self, case: Case) -> None:
        self.case = case
        self.beside: dict[str, str] = {}

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
                name: dict(value) if _OPTIONS[name] == options.PAIR else _plain_option(value)
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
        usual = _USUAL.get(kind, {})
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
        """A value of a journal as it stands in a case."""
        plain = self.case.recording.value(packed, "a value")
        if _is_plain_enough(plain):
            return self.shortened(journals.pack(plain, self.keep))
        return {"$json": json.dumps(plain)}

    def shortened(self, packed: Any) -> Any:
        """With long texts, and those that YAML cannot hold, put beside."""
        if isinstance(packed, str):
            return self.keep(packed) if len(packed) > _LONGEST or not _is_fit(packed) else bare(packed)
        if isinstance(packed, list):
            return [self.shortened(item) for item in packed]
        if isinstance(packed, dict):
            return {name: self.shortened(item) for name, item in packed.items()}
        return packed

    def keep(self, text: str) -> dict[str, Any]:
        packed = digest_only(text)
        self.beside[packed["$blob"]] = text
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


# --- which cases are meant --------------------------------------------------------------------


def find_cases(paths: list[str]) -> list[str]:
    """The files that are meant by paths of cases and folders of them; without any, `.loops/tests/`.

    Raises UserError for one that is not there.
    """
    found: dict[str, str] = {}
    for path in paths or [FOLDER]:
        if os.path.isdir(path):
            for folder, folders, files in os.walk(path):
                folders[:] = sorted(
                    name for name in folders if not name.startswith(".") and not name.endswith(".outputs")
                )
                for file in sorted(files):
                    if file.endswith(SUFFIXES) and not file.startswith("."):
                        full = os.path.join(folder, file)
                        found.setdefault(os.path.realpath(full), full)
            continue
        named = path if os.path.lexists(path) else case_path(path)
        if os.path.lexists(named):
            found.setdefault(os.path.realpath(named), named)
        elif paths:
            known = [os.path.splitext(os.path.basename(case))[0] for case in find_cases([])]
            raise UserError("unknown-case", f"there is no case `{path}`", suggest(path, known, "cases here"))
    return list(found.values())


def case_path(name: str) -> str:
    """The file of the case `name` in `.loops/tests/`; a path is a path."""
    if os.sep in name or name.endswith(SUFFIXES):
        return name
    return os.path.join(FOLDER, f"{name}.yaml")


def free_path(program: str) -> str:
    """Where a new case for a program may stand: nothing is there yet."""
    stem = runs.slug(program)
    number = 1
    while os.path.lexists(path := case_path(stem if number == 1 else f"{stem}-{number}")):
        number += 1
    return path


def is_case(path: str) -> bool:
    """Whether a file looks like a recorded case."""
    try:
        with open(path, "rb") as file:
            head = file.read(4096)
    except OSError:
        return False
    return any(line.startswith(b"llc_case:") for line in head.splitlines())
