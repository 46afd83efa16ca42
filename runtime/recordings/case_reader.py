"""Files to cases. A case is untrusted input: whatever is wrong with one is said at its place."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ...frontend.source.document import Document, Mapping, Node, Scalar, Sequence
from ...frontend.source.files import read_source
from ...frontend.source.yaml_tree import read_document
from ...ir.diagnostics import CompileError, suggest
from ..journal import journal as journals
from ..journal.codec import digest_only
from ..project import options
from .cases import EFFECT_KEYS, FORMAT, KEYS, LIMITS, NORMALIZED, OPTIONS, USUAL, Case, outputs_of
from .diff import ENDING
from .recording import Answer, Asked, Note, Recording, unpacked


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
            found = dict(self.entries(root, KEYS, "a case"))
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
            name: self.option(name, value) for name, value in self.entries(node, tuple(OPTIONS), "`options`")
        }

    def limits(self, node: Node) -> dict[str, int]:
        if not isinstance(node, Mapping):
            self.wrong(node, "limits", "a mapping")
            return {}
        return {name: self.count(value, name) for name, value in self.entries(node, LIMITS, "`limits`")}

    def option(self, name: str, node: Node) -> Any:
        kind = OPTIONS[name]
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

    def pairs(self, node: Node, name: str) -> Iterator[tuple[str, Any]]:
        if not isinstance(node, Mapping):
            self.wrong(node, name, "a mapping from names to texts")
            return
        for key, (_, value) in node.entries.items():
            is_data = isinstance(value, Mapping) and list(value.entries) == ["value"]
            yield key, self.document.plain(value) if is_data else self.text(value, key)

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
            self.effect(dict(self.entries(node, EFFECT_KEYS, "an effect")), recording)
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
        result = USUAL.get(self.kinds[seq], {}) | self.map(node)
        for name in USUAL.get(self.kinds[seq], {}):
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
            message = str(error) if isinstance(error, journals.BlobError) else "it cannot be read as a value"
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
