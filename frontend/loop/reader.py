"""Reader of loops: YAML trees to the objects of `schema`, with all diagnostics.

Reads by the field types of the classes, so that a key is declared once. An invalid value is reported and left
out, and its block is marked `flawed`, so that later checks can still examine the rest. Must not contain:
rules
that need more than one key (`checks`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

from ...ir.diagnostics import Diagnostic, labelled, nearest, suggest
from ...ir.python_internals import late_pattern
from ...ir.spans import Source, Span
from ..source.document import Document, Mapping, Node, Refused, Scalar
from ..source.schema import JSON, Field, Spec, Type, fields_of
from ..source.schema_reader import BAD, Bad, SchemaReader, describe, is_empty
from ..source.yaml_tree import read_document
from .agent_schema import AGENT_OPTIONS
from .composition import compose
from .dialect_schema import LITTLE_LOOPS, LOOP_KEYS, SILENCERS, STATE_KEYS
from .evaluator_schema import EVALUATORS, Evaluator
from .foreign_keys import explain_action_type, explain_evaluator, explain_foreign_key, explain_key
from .schema import ACTION_TYPES, COMPOSITION_KEYS, Loop, LoopSettings, StateSpec, belongs_to_loop

if TYPE_CHECKING:
    from .paradigms import Constraint, InvariantsSpec, LoopSpec

_SYNONYMS = {"on_yes": "on_success", "on_no": "on_failure"}
# Values of little-loops with the llc value that means the same.
_VALUE_SYNONYMS = {"spawn": "continue", "terminate": "end"}
_STATE_COMPOSITION_KEYS = ("fragment", "with")
_OPERATORS = {"==": "eq", "=": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
# Invisible characters in the indentation, or between a key and its value.
_INVISIBLE = late_pattern(r"(?m)(?:^[ ]*(?:- )?|:)([\u00a0\u2000-\u200b\u202f\u3000])")
_BINDINGS = Type("map", JSON)
_VERDICT_KEY = late_pattern(r"on_([A-Za-z][\w-]*)")
# Words that mean `action_type: shell`.
_SHELL_WORD = late_pattern(r"\w*sh|shell\w*|cmd|command|run")
_SUBSTITUTES: dict[str, Any] = {"text": "", "target": "", "map": {}}


def _paradigms() -> dict[str, type[LoopSettings]]:
    """The classes of loops. Deferred import: a loop of states does not need the other paradigms."""
    from .paradigms import PARADIGMS

    return PARADIGMS


def read_loop(
    source: Source, dialect: str | None = None
) -> tuple[LoopSpec | None, Document, list[Diagnostic]]:
    """Read the loop in a YAML text, in its paradigm. dialect: default for a loop without `dialect`.

    The spec is None if the errors leave nothing to check. Never raises for invalid input.
    """
    document = read_document(source)
    spec = read_tree(document, dialect)
    if (hidden := _INVISIBLE.search(document.text)) and any(found.is_error for found in document.diagnostics):
        # All other errors follow from this one.
        code = f"U+{ord(hidden[1]):04X}"
        message = f"the invisible character {code} is not a YAML space"
        place = document.span_at(*hidden.span(1))
        return None, document, [Diagnostic("yaml-syntax", message, place, "here", "replace it with a space")]
    return spec, document, document.diagnostics


def read_tree(document: Document, dialect: str | None = None) -> LoopSpec | None:
    """Read the loop in a document; None if the errors leave nothing to check."""
    try:
        compose(document)
        return _Reader(document, dialect).loop(document.root) if document.root is not None else None
    except Refused:
        return None


class _Reader(SchemaReader):
    def __init__(self, document: Document, dialect: str | None = None) -> None:
        super().__init__(document)
        self.dialect = dialect

    # --- blocks -----------------------------------------------------------------------------

    def loop(self, root: Node) -> LoopSpec | None:
        document = self.document
        if not isinstance(root, Mapping):
            self.error(
                "wrong-type",
                "a loop must be a mapping",
                document.span(root),
                describe(root),
                "see `llc schema`",
            )
            return None
        # Errors about the whole loop point to its first key.
        first = next(iter(root.entries.values()), None)
        start = document.span(first[0]) if first is not None else document.span(root)
        given = root.entries.get("dialect")
        if given is not None and isinstance(given[1], Scalar):
            self.dialect = given[1].text
        paradigm = self.paradigm(root, start)
        if paradigm is None or self.report_dedented(root):
            return None
        cls = Loop if self.is_fsm(root, paradigm) else _paradigms()[paradigm]
        fixed: dict[str, Any] = {"paradigm": paradigm} if cls is Loop else {}
        if given is None and self.dialect is not None:
            fixed["dialect"] = self.dialect
        spec = self.block(cls, root, start, f"a loop of paradigm `{paradigm}`", ignored="paradigm", **fixed)
        if spec is not None and cls is not Loop and paradigm == "invariants":
            spec = self.drop_duplicates(cast("InvariantsSpec", spec))
        return cast("LoopSpec | None", spec)

    def report_dedented(self, root: Mapping) -> bool:
        """Report states, or keys of a state, that are not indented below their parent."""
        keys = {**fields_of(StateSpec), **_SYNONYMS}
        key, states = root.entries.get("states", (None, None))
        below: list[str] = []
        if key is not None and isinstance(states, Scalar) and is_empty(states):
            below = [
                name
                for name, (_, node) in root.entries.items()
                if name not in fields_of(Loop)
                and isinstance(node, Mapping)
                and any(map(keys.get, node.entries))
            ]
        elif isinstance(states, Mapping):
            empty = [at for at, node in states.entries.values() if is_empty(node)]
            key = empty[0] if empty else None
            below = [
                name
                for name, (_, node) in states.entries.items()
                if key is not None and name in keys and isinstance(node, Scalar) and not is_empty(node)
            ]
        if key is None or not below:
            return False
        named = ", ".join(f"`{name}`" for name in below[:3]) + (" …" if len(below) > 3 else "")
        help = f"indent its content further than `{key.text}`: {named}"
        message = f"`{key.text[:80]}` should be a mapping"
        self.error("wrong-type", message, self.document.span(key), "has no content", help)
        return True

    def drop_duplicates(self, spec: InvariantsSpec) -> InvariantsSpec:
        """Report constraints with the same name, which would give states the same name; the first one is
        kept.
        """
        kept: dict[str, Constraint] = {}
        for constraint in spec.constraints:
            if kept.setdefault(constraint.name, constraint) is not constraint:
                first = kept[constraint.name].span_of("name")
                message = f"two constraints are called `{constraint.name}`"
                again, related = constraint.span_of("name"), labelled(first, "first given here")
                finding = Diagnostic("duplicate-name", message, again, "given again", related=related)
                self.document.report(finding)
        return spec.evolve(constraints=tuple(kept.values()))

    def is_fsm(self, root: Mapping, paradigm: str) -> bool:
        """Whether a document is an FSM: written as one, or printed with its original paradigm in
        `paradigm`.
        """
        if paradigm == "fsm":
            return True
        own = [
            key
            for key, field in fields_of(_paradigms()[paradigm]).items()
            if field.required and key != "name" and key not in fields_of(LoopSettings)
        ]
        return "states" in root.entries and not any(key in root.entries for key in own)

    def paradigm(self, root: Mapping, start: Span) -> str | None:
        given = root.entries.get("paradigm")
        if given is None:
            if "states" in root.entries or "initial" in root.entries:
                return "fsm"
            guess = next(
                (
                    name
                    for name, cls in _paradigms().items()
                    for key, field in fields_of(cls).items()
                    if field.required and key not in ("name", "check") and key in root.entries
                ),
                None,
            )
            help = f"add `paradigm: {guess}`" if guess else f"one of {', '.join(_paradigms())}"
            self.error(
                "missing-field", "the loop has neither `paradigm` nor `states`", start, "begins here", help
            )
            return None
        _, node = given
        if (
            isinstance(node, Scalar)
            and isinstance(node.value, str)
            and (node.value == "fsm" or node.value in _paradigms())
        ):
            return node.value
        text = node.text if isinstance(node, Scalar) else ""
        self.error(
            "unknown-paradigm",
            f"no paradigm `{text}`",
            self.document.span(node),
            "",
            suggest(text, _paradigms(), "paradigms"),
        )
        return None

    # --- what the general reader leaves open --------------------------------------------------

    def help_for_common_mistake(self, key: str, fields: dict[str, Field]) -> str | None:
        if (usual := explain_foreign_key(key, fields)) is not None:
            return usual
        if "max_iterations" not in fields:  # an inner block
            if key == "name":  # steps have names in other tools; the loop's name is not meant
                return "remove it: only loops and constraints have a name"
            return belongs_to_loop(key) or explain_key(key)
        is_of_state = key in (*_SYNONYMS, *_STATE_COMPOSITION_KEYS) or (
            _VERDICT_KEY.fullmatch(key) is not None and nearest(key, fields) is None
        )
        return explain_key(key) or (f"`{key}` belongs to a state" if is_of_state else None)

    def unknown_key(self, key: str, node: Scalar, what: str, fields: dict[str, Field]) -> None:
        """Suggest a key of little-loops only if it is the nearest key, and never list these keys."""
        dialect_keys = STATE_KEYS if "action" in fields else LOOP_KEYS
        own = {name: field for name, field in fields.items() if name not in dialect_keys}
        # The list of keys begins with the keys that most blocks need.
        own = dict(sorted(own.items(), key=lambda one: (not one[1].required, one[0] in AGENT_OPTIONS)))
        more = (
            COMPOSITION_KEYS if "initial" in fields else _STATE_COMPOSITION_KEYS if "action" in fields else ()
        )
        fields = {**fields, **dict.fromkeys(more, fields["description"])} if more else fields
        if "with" in fields:
            del fields["with_"]
        dialect_keys = (
            {**dialect_keys, **dict.fromkeys(more, fields["description"])} if more else dialect_keys
        )
        super().unknown_key(key, node, what, fields if nearest(key, fields) in dialect_keys else own)

    def help_for_misplaced_key(self, key: str) -> str | None:
        for name, cls in _paradigms().items():
            if key in fields_of(cls):
                return f"`{key}` belongs to `paradigm: {name}`"
        if key in fields_of(StateSpec):
            return f"`{key}` belongs to a state"
        owners = [name for name, cls in EVALUATORS.items() if key in fields_of(cls)]
        return f"`{key}` belongs to `evaluate` with `type: {' | '.join(owners)}`" if owners else None

    def substitute(self, cls: type[Spec], field: Field) -> Any:
        """A loop is built even without required keys, so that its states can be checked."""
        return _SUBSTITUTES[field.type.kind] if cls is Loop else BAD

    def unknown_class(self, noun: str, text: str, place: Span, help: str | None) -> Bad:
        help = explain_evaluator(text) or help
        return self.error("unknown-evaluator", f"no {noun} `{text}`", place, "", help)

    def choice(self, type: Type, node: Node, path: str) -> Any:
        text = node.text if isinstance(node, Scalar) else ""
        if text in _VALUE_SYNONYMS and _VALUE_SYNONYMS[text] in type.choices:
            return _VALUE_SYNONYMS[text]
        if "shell" in type.choices and text not in type.choices:
            meant = "did you mean `shell`?" if _SHELL_WORD.fullmatch(text) else explain_action_type(text)
            if meant is not None:
                message, place = f"`{path}` cannot be `{text}`", self.document.span(node)
                return self.error("unknown-value", message, place, "", meant)
        if path == "operator" and text in _OPERATORS:
            message, place = f"`{path}` cannot be `{text}`", self.document.span(node)
            return self.error("unknown-value", message, place, "", f"write `{_OPERATORS[text]}`")
        if path == "type" and text.lower() in ("final", "end", "terminal") and text not in type.choices:
            message, place = f"`{path}` cannot be `{text}`", self.document.span(node)
            return self.error("unknown-value", message, place, "", "write `terminal: true`")
        if path == "type" and text in ACTION_TYPES and text not in type.choices:
            message, place = f"`{path}` cannot be `{text}`", self.document.span(node)
            return self.error("unknown-value", message, place, "", f"did you mean `action_type: {text}`?")
        return super().choice(type, node, path)

    def read_other_settings(self, others: list[tuple[str, Scalar, Node]]) -> list[tuple[str, Scalar, Node]]:
        """Read top-level keys that are not in the schema; returns the unknown ones.

        Ignores keys that suppress checks of little-loops. Under the dialect an unknown key is only a warning,
        because little-loops may know it.
        """
        unknown = []
        for key, key_node, node in others:
            if re.fullmatch(SILENCERS, key):
                continue
            if self.dialect != LITTLE_LOOPS or explain_key(key) is not None:
                unknown.append((key, key_node, node))
                continue
            message = f"a loop has no key `{key[:200]}`"
            meant = nearest(key, [*fields_of(Loop), *COMPOSITION_KEYS])
            help = f"did you mean `{meant}`?" if meant else None
            self.warn("unknown-key", message, self.document.span(key_node), "has no effect", help)
        return unknown

    def read_other_evaluator_keys(
        self, cls: type[Evaluator], others: list[tuple[str, Scalar, Node]]
    ) -> list[tuple[str, Scalar, Node]]:
        """Warn about keys that belong to another evaluator, which little-loops ignores; returns the unknown
        ones.
        """
        unknown = []
        for key, key_node, node in others:
            if any(key in fields_of(other) for other in EVALUATORS.values()):
                message = f"`{key}` has no effect: `{cls.type}` does not read it"
                self.warn("unused-key", message, self.document.span(key_node), "has no effect")
            else:
                unknown.append((key, key_node, node))
        return unknown

    def read_other_keys(
        self,
        cls: type[Spec],
        others: list[tuple[str, Scalar, Node]],
        values: dict[str, Any],
        places: dict[str, Node],
    ) -> list[tuple[str, Scalar, Node]]:
        """Read `on_yes`, `on_no` and `on_<verdict>` of a state (`loops.md` 15)."""
        if issubclass(cls, LoopSettings):
            return self.read_other_settings(others)
        if issubclass(cls, Evaluator) and self.dialect == LITTLE_LOOPS:
            return self.read_other_evaluator_keys(cls, others)
        if cls is not StateSpec:
            return others
        unknown = []
        target = fields_of(StateSpec)["next"].type
        for key, key_node, node in others:
            match = _VERDICT_KEY.fullmatch(key)
            if key == "with":
                places["key:with"], places["with"] = key_node, node
                values["bindings"] = self.value(_BINDINGS, node, key, places)
                continue
            if key == "fragment":  # an unknown fragment, which was reported
                values["description"] = BAD
                continue
            if match is None:
                unknown.append((key, key_node, node))
                continue
            place = self.document.span(key_node)
            places[f"key:{key}"] = key_node
            places[key] = node
            if is_empty(node):
                self.warn("empty-value", f"`{key}` is empty", place, "has no value", "leave it out")
                continue
            value = self.value(target, node, key, places)
            name = _SYNONYMS.get(key)
            if name is not None and name in values:
                message = f"`{key}` and `{name}` mean the same"
                self.error("duplicate-key", message, place, "given again", "keep one of them")
            elif name is not None:
                values[name] = value
                places[f"key:{name}"], places[name] = key_node, node
            elif values.get("route") is BAD or value is BAD:
                values["route"] = BAD
            elif match[1] in (values.get("route") or {}):
                message = f"`{key}` has no effect: `route` has `{match[1]}`"
                self.warn("shadowed-route", message, place, "overridden", "keep one of them")
            else:
                route = values.setdefault("route", {})
                route[match[1]] = value
                places[f"key:route.{match[1]}"], places[f"route.{match[1]}"] = key_node, node
        return unknown
