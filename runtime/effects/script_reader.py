"""Reader of script files: schema and rules of a scripted world; see `spec/effects.md`, Scripted worlds."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar

from ...frontend.source.document import Mapping as MappingNode
from ...frontend.source.document import Refused
from ...frontend.source.files import read_source
from ...frontend.source.schema import JSON, SCALAR, Spec, Type, block, choice, fields_of, optional
from ...frontend.source.schema_reader import BAD, SchemaReader, is_empty
from ...frontend.source.yaml_tree import read_document
from ...frontend.tasks.names import spellings
from ...ir.diagnostics import CompileError, suggest
from ...ir.effects import EFFECTS
from ...ir.regex import compiled
from ...ir.spans import Source
from ..host import signals
from .scripted_world import EPOCH, Rule, ScriptedWorld

# Result fields that a rule can set, by kind; `verdict`, `confidence` and `reason` are short for a reply.
RESULT_FIELDS = {row.name: row.scripted.split() for row in EFFECTS.values() if row.scripted}
# Kinds that a rule must name.
_NAMED = tuple(row.name for row in EFFECTS.values() if row.inputs)
# Kinds that a rule answers if it sets no field of another kind.
_ACTIONS = tuple(row.name for row in EFFECTS.values() if row.is_action)
_MAP = Type("map", JSON)
_AMOUNT = Type("number", least=0, most=1e15)


class ResultSpec(Spec):
    """Result fields of all kinds of effects; a test compares them with the effect table."""

    noun: ClassVar[str] = "a result"

    output: str | None = optional(SCALAR, "Standard output.")
    stderr: str | None = optional(SCALAR, "Standard error.")
    exit_code: int | None = optional(Type("integer", least=0, most=255), "Exit code; default: 0.")
    duration_ms: float | None = optional(_AMOUNT, "Milliseconds; the scripted clock advances by them.")
    signal: str | None = optional(
        Type("text", expected="the name of a signal such as `SIGKILL`"), "The signal that ended the process."
    )
    timed_out: str | None = optional(choice("action", "loop"), "The time limit that ended it.")
    truncated: Mapping[str, Any] | None = optional(_MAP, "Total size of truncated output, by stream.")
    error: str | Mapping[str, Any] | None = optional(
        Type("either", options=(Type("text"), _MAP)), "The error: a kind, or a mapping with `kind`."
    )
    usage: Mapping[str, Any] | None = optional(_MAP, "Its usage: `usd`, `tokens`, `calls`.")
    session: str | None = optional(SCALAR, "The session id of the agent.")
    handoff: str | None = optional(SCALAR, "The text that the agent hands to its next session.")
    answer: str | None = optional(SCALAR, "The answer to a question.")
    verdict: str | None = optional(SCALAR, "The verdict in a model's reply.")
    confidence: float | None = optional(_AMOUNT, "Its confidence; default: 1.")
    reason: str | None = optional(SCALAR, "Its reason.")
    reply: Mapping[str, Any] | None = optional(_MAP, "The whole reply of a model.")
    matches: tuple[Any, ...] | None = optional(
        Type("list", JSON, expected="a list of paths, or of mappings with a `path`"), "Files found."
    )
    summary: str | None = optional(SCALAR, "A summary of the files.")
    value: Any = optional(JSON, "The value of a tool or of a jq expression.")
    status: str | None = optional(choice("COMPLETE", "CONTINUATION", "FAILED"), "Status of a TaskResult.")
    content: Any = optional(JSON, "Content of a TaskResult.")
    parsedContent: Any = optional(JSON, "The content as data.")
    criteria: str | None = optional(SCALAR, "Criteria of a TaskResult.")
    notes: Mapping[str, Any] | None = optional(_MAP, "Notes of a TaskResult.")


class RuleSpec(ResultSpec):
    """A rule: its conditions and results. The rule itself can also contain the fields of its result."""

    noun: ClassVar[str] = "a rule"

    state: str | None = optional(SCALAR, "Answer only in this state.")
    kind: str | None = optional(SCALAR, f"Answer only this kind: {', '.join(RESULT_FIELDS)}.")
    command: str | None = optional(SCALAR, "An RE2 expression, searched in the command, query or question.")
    times: int | None = optional(
        Type("integer", least=1), "Number of effects it answers; default: any number."
    )
    tool: str | None = optional(SCALAR, "Answer the tool of this name.")
    task: str | None = optional(SCALAR, "Answer the task of this name.")
    args: Mapping[str, Any] | None = optional(_MAP, "Answer only if the inputs have these values.")
    result: ResultSpec | None = optional(block(ResultSpec), "The result.")
    results: tuple[ResultSpec, ...] | None = optional(
        Type("list", block(ResultSpec), least=1), "Several results, one after another."
    )


class WorldFile(Spec):
    """A scripted world: results for effects, from rules."""

    noun: ClassVar[str] = "a script"

    rules: tuple[RuleSpec, ...] = optional(
        Type("list", block(RuleSpec), nullable=True, partial=True),
        "The rules; the first that matches an effect answers it.",
        (),
    )
    env: Mapping[str, str] = optional(
        Type("map", SCALAR), "All environment variables of the world.", factory=dict
    )
    clock: str | None = optional(
        Type("scalar", expected="a time such as 2024-01-15T10:30:00Z"), "Start time of the clock."
    )


def load_world(path: str) -> ScriptedWorld:
    """Load the scripted world in a file. Raises `CompileError` with all its errors."""
    return read_world(read_source(path))


def read_world(source: Source) -> ScriptedWorld:
    """Read a scripted world. Raises `CompileError` with all its errors."""
    document = read_document(source)
    world = ScriptedWorld([], {}, EPOCH, source.path)
    try:
        if document.root is not None:
            world = _ScriptReader(document).world()
    except Refused:
        pass
    if any(diagnostic.is_error for diagnostic in document.diagnostics):
        by_line = sorted(document.diagnostics, key=lambda found: found.span.line if found.span else 0)
        raise CompileError(by_line, [source])
    return world


class _ScriptReader(SchemaReader):
    def world(self) -> ScriptedWorld:
        root = self.document.root
        assert root is not None
        path = self.document.source.path
        if isinstance(root, MappingNode):
            spec = self.spec(block(WorldFile), root, "a script")
            if spec is BAD:
                return ScriptedWorld([], {}, EPOCH, path)
            rules = [self.rule(rule) for rule in spec.rules or ()]
            return ScriptedWorld(rules, dict(spec.env), self.clock(spec), path)
        specs = () if is_empty(root) else self.value(fields_of(WorldFile)["rules"].type, root, "rules", {})
        return ScriptedWorld([] if specs is BAD else [self.rule(rule) for rule in specs], {}, EPOCH, path)

    def clock(self, spec: WorldFile) -> datetime:
        if spec.clock is None:
            return EPOCH
        try:
            moment = datetime.fromisoformat(spec.clock)
        except ValueError:
            message = "`clock` should be a time such as 2024-01-15T10:30:00Z"
            self.error("wrong-type", message, spec.spans["clock"])
            return EPOCH
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)

    def rule(self, spec: RuleSpec) -> Rule:
        rule = Rule(spec.span.line if spec.span is not None else 0)
        rule.state, rule.command, rule.times = spec.state, spec.command, spec.times
        kind = spec.kind
        if kind is not None and kind not in RESULT_FIELDS:
            help = suggest(kind, RESULT_FIELDS, "kinds that a rule answers")
            self.error("unknown-kind", f"no rule answers `{kind}`", spec.spans["kind"], "", help)
            kind = None
        kind = self.named_kind(rule, spec, kind)
        if spec.command is not None:
            rule.pattern = self.pattern(spec.command, spec)
        shared = self.result(spec)
        if spec.results is not None:
            rule.results = [{**shared, **self.result(result)} for result in spec.results]
            rule.times = len(rule.results)
            for name in ("times", "result"):
                if spec.is_given(name):
                    message = f"`results` and `{name}` exclude each other"
                    self.error("contradictory-keys", message, spec.spans[name])
        else:
            rule.results = [shared | (self.result(spec.result) if spec.result is not None else {})]
        self.set_kinds(rule, kind, spec)
        return rule

    def named_kind(self, rule: Rule, spec: RuleSpec, kind: str | None) -> str | None:
        """The kind of the rule: by the tool or task that it names, otherwise `kind`."""
        named = [name for name in _NAMED if getattr(spec, name) is not None]
        for name in named:
            if kind not in (None, name) or spec.command is not None or len(named) > 1:
                others = ("kind", "command", *_NAMED)
                other = next(other for other in others if spec.is_given(other) and other != name)
                message = f"`{name}` and `{other}` exclude each other"
                self.error("contradictory-keys", message, spec.spans[name])
                return None
            kind = name
            # The full name for any accepted spelling.
            rule.name = list(spellings(getattr(spec, name)))[-1]
        if spec.args is not None and kind not in _NAMED:
            message = "`args` is for a `tool` or a `task`"
            self.error("contradictory-keys", message, spec.spans["args"])
        rule.args = dict(spec.args or {})
        return kind

    def set_kinds(self, rule: Rule, kind: str | None, spec: RuleSpec) -> None:
        """Set the kinds that the rule answers: the kinds whose results have all its fields."""
        fields = dict.fromkeys(name for result in rule.results for name in result)
        if kind is not None:
            rule.kinds = (kind,)
            for name in fields:
                if name not in RESULT_FIELDS[kind]:
                    help = suggest(name, RESULT_FIELDS[kind], "it may have")
                    message = f"a result of `{kind}` has no key `{name}`"
                    self.error("unknown-key", message, spec.span, "", help)
            return
        # A rule without a reply or a value is for an action.
        specific = set(fields) - {"duration_ms", "error", "timed_out", "usage"}
        kinds = tuple(RESULT_FIELDS) if specific and rule.command is None else _ACTIONS
        kinds = tuple(kind for kind in kinds if kind not in _NAMED)
        if "answer" in fields:
            kinds = ("ask",)
        if "matches" in fields:
            kinds = ("context",)
        rule.kinds = tuple(kind for kind in kinds if all(name in RESULT_FIELDS[kind] for name in fields))
        if not rule.kinds and not spec.flawed:
            names = ", ".join(f"`{name}`" for name in fields)
            self.error("contradictory-keys", f"no kind of effect has {names} together", spec.span)

    def result(self, spec: ResultSpec) -> dict[str, Any]:
        """The result fields that are set."""
        if spec.signal is not None and not signals.number_of(spec.signal):
            message = "`signal` should be the name of a signal such as `SIGKILL`"
            self.error("wrong-type", message, spec.spans["signal"])
        if not all(_is_match(match) for match in spec.matches or ()):
            message = "`matches` should be a list of paths, or of mappings with a `path`"
            self.error("wrong-type", message, spec.spans["matches"])
        result: dict[str, Any] = {}
        for name, field in fields_of(ResultSpec).items():
            value = getattr(spec, name)
            if spec.is_given(name) and (value is not None or field.type.kind == "json"):
                result[name] = list(value) if isinstance(value, tuple) else value
        return result

    def pattern(self, command: str, spec: RuleSpec) -> Any:
        try:
            return compiled(command)
        except ValueError as error:
            message = f"`command` is not a regular expression: {error}"
            self.error("invalid-regex", message, spec.spans["command"])
            return None


def _is_match(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, dict) and isinstance(value.get("path"), str))
