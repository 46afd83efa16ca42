"""Reader of case files, with their schema. A case is untrusted input."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, ClassVar

from ...frontend.source.document import Document, Node, Refused, Scalar, Sequence
from ...frontend.source.document import Mapping as MappingNode
from ...frontend.source.files import read_source
from ...frontend.source.schema import BOOLEAN, JSON, TEXT, Spec, Type, block, choice, optional, required
from ...frontend.source.schema_reader import SchemaReader
from ...frontend.source.yaml_tree import read_document
from ...ir.diagnostics import CompileError
from ..journal import journal as journals
from ..journal.codec import digest_only
from ..project import options
from .cases import DEFAULT_RESULTS, FORMAT, LIMITS, NORMALIZED, OPTIONS, Case, outputs_folder
from .diff import OUTCOME_FIELDS
from .recording import Answer, EffectRequest, Note, Recording, unpacked

_COUNT = Type("integer", least=0, most=1e15)
# A value in the form of a journal: plain data, and special forms for data that YAML cannot represent.
_RECORDED = Type("node")
_FIELDS = Type("map", _RECORDED)
_OPTION_TYPES = {
    options.FLAG: BOOLEAN,
    options.COUNT: _COUNT,
    options.TEXT: Type("text"),
    options.PAIR: Type("map", Type("either", options=(Type("text"), Type("map", JSON)))),
    options.MANY: Type("list", Type("text")),
}


def _block(name: str, types: Mapping[str, Type], doc: str) -> type[Spec]:
    """A schema block whose keys are declared elsewhere; all keys are optional."""
    fields = {name: optional(type, doc) for name, type in types.items()}
    return type(
        name, (Spec,), {"__doc__": f"{doc}\n", "__annotations__": dict.fromkeys(fields, "Any"), **fields}
    )


CaseOptions = _block(
    "CaseOptions",
    {name: _OPTION_TYPES[kind] for name, kind in OPTIONS.items()},
    "An option of the command line that changes the program.",
)
CaseLimits = _block("CaseLimits", dict.fromkeys(LIMITS, _COUNT), "A limit of the machine.")
CaseOutcome = _block("CaseOutcome", dict.fromkeys(OUTCOME_FIELDS, _RECORDED), "How the run ended.")


class CaseFile(Spec):
    """A recorded run as a test case."""

    noun: ClassVar[str] = "a case"

    llc_case: int = required(Type("integer", least=FORMAT, most=FORMAT), "The format.")
    source: str | None = optional(TEXT, "The loop that the case tests.")
    expression: str | None = optional(Type("text"), "The expression that it tests, instead of a `source`.")
    options: Any = optional(block(CaseOptions), "Options that the loop is compiled with.")
    limits: Any = optional(block(CaseLimits), "Limits of the machine.")
    normalized: tuple[str, ...] = optional(
        Type("list", choice(*NORMALIZED)), "What was replaced by fixed values.", ()
    )
    ticks: int = optional(_COUNT, "Ticks that the run used.", 0)
    trace: tuple[Node, ...] = required(
        Type("list", _RECORDED, expected="a list of events"), "The events: effects and notes."
    )
    outcome: Any = optional(block(CaseOutcome)._replace(nullable=True), "How it ended; null: it did not.")


class EffectEvent(Spec):
    """An effect that was requested, with its result unless that comes later."""

    noun: ClassVar[str] = "an effect"

    effect: str = required(TEXT, "Its kind.")
    args: Mapping[str, Node] = optional(_FIELDS, "Its arguments.", factory=dict)
    result: Mapping[str, Node] | None = optional(_FIELDS, "Its result.")


class ResultEvent(Spec):
    """A result that came after further effects had been requested."""

    noun: ClassVar[str] = "a result"

    result_of: int = required(_COUNT, "The number of the effect, from 1.")
    result: Mapping[str, Node] = required(_FIELDS, "Its result.")


def read(path: str) -> Case:
    """Read a case from a file. Raises CompileError with all errors in the file."""
    document = read_document(read_source(path))
    case = Case(path, "", None, {}, (), 0, Recording(path, {}, lambda name, size: ""))
    with suppress(Refused):
        case = _Reader(document).case()
    if any(finding.is_error for finding in document.diagnostics):
        raise CompileError(document.diagnostics, [document.source])
    return case


class _Reader(SchemaReader):
    def __init__(self, document: Document) -> None:
        super().__init__(document)
        self.path = document.source.path
        self.outputs = journals.Blobs(outputs_folder(self.path))
        self.texts: dict[str, str] = {}
        self.kinds: dict[int, str] = {}
        self.answered: set[int] = set()

    def case(self) -> Case:
        root = self.document.root
        recording = Recording(self.path, {}, self.fetch)
        case = Case(self.path, "", None, {}, (), 0, recording)
        if not isinstance(root, MappingNode):
            if not self.document.diagnostics:
                place = self.document.span_at(0, 0)
                self.error("not-a-case", "a case is a mapping with `llc_case`", place)
            return case
        if not self.is_known(root):
            return case
        spec = self.block(CaseFile, root, self.document.span_at(root.start, root.start), CaseFile.noun)
        if not isinstance(spec, CaseFile):
            return case
        self.check_source(spec)
        case.source, case.expression = spec.source or "", spec.expression
        case.normalized, case.ticks = spec.normalized, spec.ticks
        if spec.options is not None:
            case.options = self.options(spec.options)
        if spec.limits is not None:
            limits = {name: getattr(spec.limits, name) for name in LIMITS}
            case.limits = {name: limit for name, limit in limits.items() if limit is not None}
            recording.about["limits"] = case.limits
        for node in spec.trace:
            self.event(node, recording)
        if spec.outcome is not None:
            nodes = spec.outcome.spans.nodes
            recording.end = {name: self.recorded(nodes[name]) for name in OUTCOME_FIELDS if name in nodes}
        return case

    def is_known(self, root: MappingNode) -> bool:
        """Whether this version of llc reads the format; reports an error if not."""
        if "llc_case" not in root.entries:
            place = self.document.span_at(root.start, root.start)
            help = f"a case begins with `llc_case: {FORMAT}`; `llc record` creates one"
            self.error("not-a-case", "this file is not a recorded case", place, help=help)
            return False
        node = root.entries["llc_case"][1]
        version = self.document.plain(node)
        if version != FORMAT or type(version) is not int:
            shown = node.text if isinstance(node, Scalar) else "this"
            message = f"a case of format {shown} cannot be read; this llc reads {FORMAT}"
            self.error("unsupported-format", message, self.document.span(node))
            return False
        return True

    # --- parts --------------------------------------------------------------------------------

    def check_source(self, spec: CaseFile) -> None:
        if spec.is_given("source") == spec.is_given("expression"):
            message = "a case has either a `source` or an `expression`"
            self.error("missing-field", message, spec.span)
        elif "\0" in (spec.source or ""):
            self.error("wrong-type", "`source` should be the path of a loop", spec.spans["source"])

    def options(self, spec: Spec) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, kind in OPTIONS.items():
            value = getattr(spec, name)
            if not spec.is_given(name):
                continue
            if kind == options.PAIR:
                value = tuple((key, _option_value(text)) for key, text in (value or {}).items())
            values[name] = value or None if kind == options.COUNT else value
        return values

    # --- the trace ----------------------------------------------------------------------------

    def event(self, node: Node, recording: Recording) -> None:
        place = self.document.span(node)
        if not isinstance(node, MappingNode) or not node.entries:
            self.wrong_type(Type("list", expected="a list of mappings"), node, "trace")
        elif "effect" in node.entries:
            effect = self.block(EffectEvent, node, place, EffectEvent.noun)
            if isinstance(effect, EffectEvent):
                self.effect(effect, recording)
        elif "result_of" in node.entries:
            result = self.block(ResultEvent, node, place, ResultEvent.noun)
            if isinstance(result, ResultEvent):
                self.late_result(result, recording)
        elif len(node.entries) == 1:
            ((kind, (_, fields)),) = node.entries.items()
            if isinstance(fields, MappingNode):
                recording.add(Note(kind, self.values(_nodes(fields))))
            else:
                self.wrong_type(_FIELDS, fields, kind)
        else:
            names = ", ".join(f"`{name}`" for name in list(node.entries)[:4])
            message = f"an event is a note by its kind, an `effect` or a `result_of`, not {names}"
            self.error("not-an-event", message, place)

    def effect(self, spec: EffectEvent, recording: Recording) -> None:
        seq = len(self.kinds) + 1
        self.kinds[seq] = spec.effect
        recording.add(EffectRequest(seq, spec.effect, self.values(spec.args)))
        if spec.result is not None:
            self.answer(seq, spec.result, recording)

    def late_result(self, spec: ResultEvent, recording: Recording) -> None:
        seq = spec.result_of
        if seq not in self.kinds or seq in self.answered:
            problem = (
                "has a result already" if seq in self.answered else "is not requested before this result"
            )
            self.error("no-such-effect", f"effect {seq} {problem}", spec.spans["result_of"])
        else:
            self.answer(seq, spec.result, recording)

    def answer(self, seq: int, fields: Mapping[str, Node], recording: Recording) -> None:
        self.answered.add(seq)
        defaults = DEFAULT_RESULTS.get(self.kinds[seq], {})
        result = defaults | self.values(fields)
        for name in defaults:
            node = fields.get(name)
            if isinstance(node, Scalar) and node.value is None:
                del result[name]
        recording.give(Answer(seq, result))

    # --- values -------------------------------------------------------------------------------

    def values(self, nodes: Mapping[str, Node]) -> dict[str, Any]:
        """Values by name, in the form of a journal."""
        return {name: self.recorded(node) for name, node in nodes.items()}

    def recorded(self, node: Node) -> Any:
        """A value in the form of a journal; reports an error and returns None if it cannot be read."""
        try:
            plain = unpacked(self.revive(node), self.find)
        except (journals.BlobError, ValueError, RecursionError) as error:
            message = str(error) if isinstance(error, journals.BlobError) else "not a valid value"
            self.error("bad-value", message, self.document.span(node))
            return None
        return journals.pack(plain, self.keep)

    def revive(self, node: Node) -> Any:
        """Convert a node to the form of a journal, reading `$json`. Raises ValueError for an unknown form."""
        if isinstance(node, Scalar):
            return node.value
        if isinstance(node, Sequence):
            return [self.revive(item) for item in node.items]
        inner = node.entries["$map"][1] if list(node.entries) == ["$map"] else None
        if isinstance(inner, MappingNode):
            return {"$map": {name: self.revive(value) for name, (_, value) in inner.entries.items()}}
        plain = {name: self.revive(value) for name, (_, value) in node.entries.items()}
        match plain:
            case {"$json": str(text), **rest} if not rest:
                # Packed like any value, because the data in `$json` may look like a special form.
                return journals.pack(json.loads(text), self.keep)
            case (
                {"$blob": str(), "size": int(), **rest}
                | {"$float": str(), **rest}
                | {"$secret": list(), **rest}
            ) if not rest:
                return plain
        if any(name.startswith("$") for name in plain):
            raise ValueError("unknown form of a value")
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


def _nodes(node: MappingNode) -> dict[str, Node]:
    return {name: value for name, (_, value) in node.entries.items()}


def _option_value(value: Any) -> Any:
    """The value of a `K=V` option: a text, or data in the form `{value: …}`."""
    return value["value"] if isinstance(value, dict) and list(value) == ["value"] else value
