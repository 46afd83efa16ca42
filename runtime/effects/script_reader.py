"""Script files: YAML to the rules of a scripted world, with every problem found on the way.

The format is described in `spec/effects.md`, Scripted worlds; the tables here are what it may say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from ...frontend.source.document import Document, Mapping, Node, Scalar, Sequence
from ...frontend.source.yaml_tree import read_document
from ...frontend.tasks.names import spellings
from ...ir.diagnostics import CompileError, suggest
from ...ir.effects import EFFECTS
from ...ir.spans import Source
from .process import signal_number
from .scripted_world import EPOCH, Rule, ScriptedWorld

# The fields of a result that a rule may give, by kind; `verdict`, `confidence`, `reason` stand for a reply.
RESULT_FIELDS = {row.name: row.scripted for row in EFFECTS.values() if row.scripted}
RULE_FIELDS = ("state", "kind", "command", "times", "tool", "task", "args", "result", "results")
# Kinds that a rule has to name, and kinds that it answers if it gives no field of another kind.
_NAMED = tuple(row.name for row in EFFECTS.values() if row.inputs)
_ACTIONS = tuple(row.name for row in EFFECTS.values() if row.is_action)
_TYPES = {
    "state": "a text",
    "kind": "a text",
    "command": "a text",
    "times": "a whole number from 1",
    "output": "a text",
    "stderr": "a text",
    "exit_code": "a whole number from 0 to 255",
    "duration_ms": "a number from 0",
    "answer": "a text",
    "session": "a text",
    "handoff": "a text",
    "signal": "the name of a signal such as `SIGKILL`",
    "timed_out": "`action` or `loop`",
    "truncated": "a mapping",
    "error": "a text or a mapping",
    "usage": "a mapping",
    "verdict": "a text",
    "confidence": "a number from 0",
    "reason": "a text",
    "reply": "a mapping",
    "matches": "a list of paths, or of mappings with a `path`",
    "summary": "a text",
    "tool": "a text",
    "task": "a text",
    "args": "a mapping",
    "status": "`COMPLETE`, `CONTINUATION` or `FAILED`",
    "criteria": "a text",
    "notes": "a mapping",
}


def read(source: Source) -> ScriptedWorld:
    """The world that a script describes; CompileError with every problem found in it."""
    return _Reader(read_document(source)).world()


class _Reader:
    """A document to a scripted world, with every problem found on the way."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.path = document.source.path

    def world(self) -> ScriptedWorld:
        document = self.document
        root = document.root
        rules: list[Rule] = []
        env: dict[str, str] = {}
        start = EPOCH
        if isinstance(root, Mapping):
            known: dict[str, Callable[[Node], Any]] = {
                "rules": self.rules,
                "env": self.env,
                "clock": self.clock,
            }
            found = {
                name: known[name](node)
                for name, node in self.entries(root, known, "a script")
                if name in known
            }
            rules = found.get("rules") or []
            env = found.get("env") or {}
            start = found.get("clock") or EPOCH
        elif root is not None:
            rules = self.rules(root)
        if document.diagnostics:
            raise CompileError(document.diagnostics, [document.source])
        return ScriptedWorld(rules, env, start, self.path)

    def entries(self, node: Mapping, known: Iterable[str], what: str) -> list[tuple[str, Node]]:
        """The entries of a mapping; unknown keys are reported."""
        known = tuple(known)
        for name, (key, _) in node.entries.items():
            if name not in known:
                span = self.document.span(key)
                self.document.fail(
                    "unknown-key", f"{what} has no `{name}`", span, help=suggest(name, known, "it may have")
                )
        return [(name, value) for name, (_, value) in node.entries.items() if name in known]

    def wrong(self, node: Node, name: str, wanted: str) -> None:
        self.document.fail("wrong-type", f"`{name}` is {wanted}", self.document.span(node), "not this")

    def rules(self, node: Node) -> list[Rule]:
        if isinstance(node, Sequence):
            return [self.rule(item) for item in node.items]
        if not (isinstance(node, Scalar) and node.value is None):
            self.wrong(node, "rules", "a list of rules")
        return []

    def env(self, node: Node) -> dict[str, str]:
        if not isinstance(node, Mapping):
            self.wrong(node, "env", "a mapping from names to texts")
            return {}
        values = {}
        for name, (_, value) in node.entries.items():
            if isinstance(value, Scalar) and value.value is not None:
                values[name] = value.text
            else:
                self.wrong(value, name, "a text")
        return values

    def clock(self, node: Node) -> datetime:
        text = node.text if isinstance(node, Scalar) else ""
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            self.wrong(node, "clock", "a time such as 2024-01-15T10:30:00Z")
            return EPOCH
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)

    def rule(self, node: Node) -> Rule:
        document = self.document
        rule = Rule(document.span(node).line)
        if not isinstance(node, Mapping):
            self.wrong(node, "a rule", "a mapping")
            return rule
        fields = dict.fromkeys(name for names in RESULT_FIELDS.values() for name in names)
        entries = dict(self.entries(node, (*RULE_FIELDS, *fields), "a rule"))
        own = {name: self.value(name, entries[name]) for name in RULE_FIELDS[:7] if name in entries}
        shared = self.result({name: value for name, value in entries.items() if name in fields})
        rule.state, rule.command, rule.times = own.get("state"), own.get("command"), own.get("times")
        kind = own.get("kind")
        if kind is not None and kind not in RESULT_FIELDS:
            help = suggest(kind, RESULT_FIELDS, "kinds that a rule answers")
            document.fail(
                "unknown-kind", f"no rule answers `{kind}`", document.span(entries["kind"]), help=help
            )
            kind = None
        kind = self.settle_name(rule, own, kind, entries)
        if rule.command is not None:
            rule.pattern = self.pattern(rule.command, entries["command"])
        if "results" in entries:
            rule.results = self.results(entries["results"], shared)
            rule.times = len(rule.results)
            for name in ("times", "result"):
                if name in entries:
                    span = document.span(entries[name])
                    document.fail("contradictory-keys", f"`results` and `{name}` exclude each other", span)
        else:
            rule.results = [{**shared, **self.result_at(entries.get("result"))}]
        self.settle_kinds(rule, kind, node)
        return rule

    def settle_name(
        self, rule: Rule, own: dict[str, Any], kind: str | None, entries: dict[str, Node]
    ) -> str | None:
        """Which tool or task the rule is for; the kind that says."""
        named = [name for name in _NAMED if own.get(name) is not None]
        for name in named:
            if kind not in (None, name) or rule.command is not None or len(named) > 1:
                span = self.document.span(entries[name])
                others = next(
                    other for other in ("kind", "command", *_NAMED) if other in entries and other != name
                )
                self.document.fail("contradictory-keys", f"`{name}` and `{others}` exclude each other", span)
                return None
            kind = name
            # The full name, however it is spelled.
            rule.name = list(spellings(own[name]))[-1]
        if "args" in entries and kind not in _NAMED:
            span = self.document.span(entries["args"])
            self.document.fail("contradictory-keys", "`args` is for a `tool` or a `task`", span)
        rule.args = own.get("args") or {}
        return kind

    def settle_kinds(self, rule: Rule, kind: str | None, node: Node) -> None:
        """What kinds the rule can answer: those that have the fields it gives."""
        given = dict.fromkeys(name for result in rule.results for name in result)
        if kind is not None:
            rule.kinds = (kind,)
            for name in given:
                if name not in RESULT_FIELDS[kind]:
                    self.document.fail(
                        "unknown-key",
                        f"a result of `{kind}` has no `{name}`",
                        self.document.span(node),
                        help=suggest(name, RESULT_FIELDS[kind], "it may have"),
                    )
            return
        # A rule that tells nothing of a reply or a value means an action.
        tells = set(given) - {"duration_ms", "error", "timed_out", "usage"}
        kinds = tuple(RESULT_FIELDS) if tells and rule.command is None else _ACTIONS
        kinds = tuple(kind for kind in kinds if kind not in _NAMED)
        if "answer" in given:
            kinds = ("ask",)
        if "matches" in given:
            kinds = ("context",)
        rule.kinds = tuple(kind for kind in kinds if all(name in RESULT_FIELDS[kind] for name in given))
        if not rule.kinds:
            names = ", ".join(f"`{name}`" for name in given)
            self.document.fail(
                "contradictory-keys", f"no kind of effect has {names} together", self.document.span(node)
            )

    def results(self, node: Node, shared: dict[str, Any]) -> list[dict[str, Any]]:
        if not isinstance(node, Sequence) or not node.items:
            self.wrong(node, "results", "a list of results, at least one")
            return []
        return [{**shared, **self.result_at(item)} for item in node.items]

    def result_at(self, node: Node | None) -> dict[str, Any]:
        if node is None:
            return {}
        if not isinstance(node, Mapping):
            self.wrong(node, "result", "a mapping")
            return {}
        fields = dict.fromkeys(name for names in RESULT_FIELDS.values() for name in names)
        return self.result(dict(self.entries(node, fields, "a result")))

    def result(self, entries: dict[str, Node]) -> dict[str, Any]:
        return {name: self.value(name, node) for name, node in entries.items()}

    def value(self, name: str, node: Node) -> Any:
        """The value of a field, held against `_TYPES`; None where it does not fit."""
        wanted = _TYPES.get(name)
        value = self.document.plain(node)
        if wanted is None or _fits(wanted, value):
            return value
        if wanted == "a text" and isinstance(node, Scalar) and value is not None:
            return node.text  # `output: 4` is the text 4
        self.wrong(node, name, wanted)
        return None

    def pattern(self, command: str, node: Node) -> Any:
        import re2  # type: ignore[import-untyped, unused-ignore]

        options = re2.Options()
        options.log_errors = False
        try:
            return re2.compile(command, options)
        except re2.error as error:
            words = error.args[0].decode() if isinstance(error.args[0], bytes) else str(error)
            self.document.fail(
                "invalid-regex", f"`command` is not a regular expression: {words}", self.document.span(node)
            )
            return None


def _fits(wanted: str, value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    match wanted:
        case "a text":
            return isinstance(value, str)
        case "the name of a signal such as `SIGKILL`":
            return isinstance(value, str) and signal_number(value) > 0
        case "`COMPLETE`, `CONTINUATION` or `FAILED`":
            return value in ("COMPLETE", "CONTINUATION", "FAILED")
        case "a mapping":
            return isinstance(value, dict)
        case "a list of paths, or of mappings with a `path`":
            return isinstance(value, list) and all(
                isinstance(one, str) or (isinstance(one, dict) and isinstance(one.get("path"), str))
                for one in value
            )
        case "a text or a mapping":
            return isinstance(value, str | dict)
        case "`action` or `loop`":
            return value in ("action", "loop")
        case "a whole number from 1":
            return number and isinstance(value, int) and value >= 1
        case "a whole number from 0 to 255":
            return number and isinstance(value, int) and 0 <= value <= 255
        case _:
            return number and 0 <= value < 1e15
