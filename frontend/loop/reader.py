"""YAML trees to the objects of `schema`, with every finding on the way.

Reads by the classes' own field types, so that a key is declared once. What cannot be read is
reported and left out, and its block marked `flawed`, so that the checks that follow can still speak
about the rest. Must not be in here: what needs more than one key to be seen (`check`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import attrs

from ...ir.diagnostics import Diagnostic, nearest, suggest
from ...ir.spans import Source, Span
from ..source.values import BAD, ValueReader, describe
from ..source.yaml_tree import Document, Mapping, Node, Places, Refused, Scalar, Sequence, read_document
from .schema import (
    EVALUATORS,
    Evaluator,
    Loop,
    LoopSettings,
    Spec,
    StateSpec,
    Type,
)

if TYPE_CHECKING:
    from .paradigm_schema import Constraint, InvariantsSpec, LoopSpec

_SYNONYMS = {"on_yes": "on_success", "on_no": "on_failure"}
_VERDICT_KEY = re.compile(r"on_([A-Za-z][\w-]*)")
# What stands in for a required field of a loop that could not be read.
_STAND_IN: dict[str, Any] = {"text": "", "target": "", "map": {}}


class _Field(NamedTuple):
    type: Type
    required: bool


_tables: dict[type[Spec], dict[str, _Field]] = {}
_needed: dict[type[Spec], frozenset[str]] = {}


def fields_of(cls: type[Spec]) -> dict[str, _Field]:
    """The keys a block may have, in the order of the schema."""
    table = _tables.get(cls)
    if table is None:
        table = {
            field.name: _Field(field.metadata["type"], field.default is attrs.NOTHING)
            for field in attrs.fields(cls)
            if "type" in field.metadata
        }
        _tables[cls] = table
    return table


def _required(cls: type[Spec]) -> frozenset[str]:
    """Those of them that a block must have."""
    known = _needed.get(cls)
    if known is None:
        known = _needed[cls] = frozenset(key for key, field in fields_of(cls).items() if field.required)
    return known


def _paradigms() -> dict[str, type[LoopSettings]]:
    """The classes of loops; a loop of states does not wait for the others."""
    from .paradigm_schema import PARADIGMS

    return PARADIGMS


def read_loop(source: Source) -> tuple[LoopSpec | None, Document, list[Diagnostic]]:
    """The loop a YAML text describes, in the paradigm it is written in.

    The spec is None where too little could be read to go on. Never raises for bad input.
    """
    document = read_document(source)
    return read_tree(document), document, document.diagnostics


def read_tree(document: Document) -> LoopSpec | None:
    """The same of a document that is read already."""
    try:
        return _Reader(document).loop(document.root) if document.root is not None else None
    except Refused:
        return None


# What other formats, YAML 1.1 among them, take for a boolean.
_BOOLEAN_HELP = {
    **dict.fromkeys(("true", "yes", "on", "y", "1"), "write `true`"),
    **dict.fromkeys(("false", "no", "off", "n", "0"), "write `false`"),
}


class _Reader(ValueReader):
    # --- blocks -----------------------------------------------------------------------------

    def loop(self, root: Node) -> LoopSpec | None:
        document = self.document
        if not isinstance(root, Mapping):
            self.error(
                "wrong-type",
                "a loop is a mapping of keys",
                document.span(root),
                describe(root),
                "see `llc schema`",
            )
            return None
        # A key is where a reader looks; the end of a whole document is of no use to anybody.
        first = next(iter(root.entries.values()), None)
        start = document.span(first[0]) if first is not None else document.span(root)
        paradigm = self.paradigm(root, start)
        if paradigm is None:
            return None
        cls = Loop if self.is_compiled(root, paradigm) else _paradigms()[paradigm]
        fixed: dict[str, Any] = {"paradigm": paradigm} if cls is Loop else {}
        spec = self.block(cls, root, start, f"a loop of paradigm `{paradigm}`", ignored="paradigm", **fixed)
        if spec is not None and cls is not Loop and paradigm == "invariants":
            spec = self.distinct(cast("InvariantsSpec", spec))
        return cast("LoopSpec | None", spec)

    def distinct(self, spec: InvariantsSpec) -> InvariantsSpec:
        """Constraints give states their names, so each has its own; the first of a name stays."""
        kept: dict[str, Constraint] = {}
        for constraint in spec.constraints:
            if kept.setdefault(constraint.name, constraint) is not constraint:
                first = kept[constraint.name].span_of("name")
                help = f"it was given before in line {first.line}" if first else None
                message = f"two constraints are called `{constraint.name}`"
                self.error("duplicate-name", message, constraint.span_of("name"), "", help)
        return attrs.evolve(spec, constraints=tuple(kept.values()))

    def is_compiled(self, root: Mapping, paradigm: str) -> bool:
        """Whether a document is an FSM: written as one, or printed, saying what it was written in."""
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

    def block(
        self,
        cls: type[Spec],
        node: Mapping,
        place: Span | None,
        what: str,
        *,
        ignored: str | None = None,
        named: Scalar | None = None,
        **fixed: Any,
    ) -> Spec | None:
        """An object of `cls` from a mapping; None where a required key has no usable value.

        `place` is where to say that a key is missing, None: at `named`, the key it has its name from;
        `what` how to name the block, `ignored` a key that was read before, `fixed` values from elsewhere.
        """
        document = self.document
        fields = fields_of(cls)
        values: dict[str, Any] = fixed if "span" in fixed else {"span": document.span(node), **fixed}
        places: dict[str, Node] = {} if named is None else {"name": named}
        flawed = False
        others: list[tuple[str, Scalar, Node]] = []
        for key, (key_node, value_node) in node.entries.items():
            if key not in fields:
                if key == ignored:
                    places[f"key:{key}"], places[key] = key_node, value_node
                else:
                    others.append((key, key_node, value_node))
                continue
            places[f"key:{key}"] = key_node
            places[key] = value_node
            field = fields[key]
            if isinstance(value_node, Scalar) and value_node.value is None and field.type.kind != "json":
                if not field.required:
                    self.warn(
                        "empty-value",
                        f"`{key}` is empty",
                        document.span(key_node),
                        "has no value",
                        "leave it out",
                    )
                continue
            value = self.value(field.type, value_node, key, places)
            if value is BAD:
                flawed = True
                values[key] = BAD
            else:
                values[key] = value
        if others:
            if cls is StateSpec:
                others = self.sugar(others, values, places)
            for key, key_node, _ in others:
                flawed = True
                self.unknown_key(key, key_node, what, fields)
        is_lost = False
        is_whole = not flawed and _required(cls) <= values.keys()
        for key, field in () if is_whole else fields.items():
            if key not in values and field.required:
                flawed = True
                values[key] = BAD
                given = places.get(f"key:{key}")
                label = "begins here" if given is None else "has no value"
                where = place
                if given is not None or where is None:
                    where = document.span(given or named or node)
                self.error("missing-field", f"{what} needs `{key}`", where, label)
            if values.get(key) is BAD:
                if not field.required:
                    del values[key]
                elif cls is Loop:
                    values[key] = _STAND_IN[field.type.kind]
                else:
                    is_lost = True
        if is_lost:
            return None
        return cls(spans=Places(document, places), flawed=flawed, **values)

    def unknown_key(self, key: str, node: Scalar, what: str, fields: dict[str, _Field]) -> None:
        help = suggest(key, fields, "it may have")
        if key == "<<":
            help = "YAML 1.2 has no merge keys; write the keys out"
        elif nearest(key, fields) is None:
            home = next(
                (name for name, cls in _paradigms().items() if key in fields_of(cls)),
                "state" if key in fields_of(StateSpec) else None,
            )
            if home == "state":
                help = f"`{key}` belongs to a state"
            elif home is not None:
                help = f"`{key}` belongs to `paradigm: {home}`"
        self.error("unknown-key", f"{what} has no key `{key}`", self.document.span(node), "unknown", help)

    def sugar(
        self, others: list[tuple[str, Scalar, Node]], values: dict[str, Any], places: dict[str, Node]
    ) -> list[tuple[str, Scalar, Node]]:
        """`on_yes`, `on_no` and `on_<verdict>` of a state (`loops.md` 15); returns what is neither."""
        unknown = []
        target = fields_of(StateSpec)["next"].type
        for key, key_node, node in others:
            match = _VERDICT_KEY.fullmatch(key)
            if match is None:
                unknown.append((key, key_node, node))
                continue
            value = self.value(target, node, key, places)
            place = self.document.span(key_node)
            places[f"key:{key}"] = key_node
            places[key] = node
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
                message = f"`{key}` has no effect: `route` says where `{match[1]}` goes"
                self.warn("shadowed-route", message, place, "overridden", "keep one of them")
            else:
                route = values.setdefault("route", {})
                route[match[1]] = value
                places[f"key:route.{match[1]}"], places[f"route.{match[1]}"] = key_node, node
        return unknown

    def state(self, name: str, key: Scalar, node: Node) -> StateSpec:
        what = f"state `{name}`"
        if isinstance(node, Mapping):
            span = self.document.span_at(key.start, node.end)
            spec = self.block(StateSpec, node, None, what, named=key, name=name, span=span)
            assert isinstance(spec, StateSpec)
            return spec
        place = self.document.span(key)
        self.error(
            "wrong-type",
            f"{what} should be a mapping",
            place if isinstance(node, Scalar) and not node.text else self.document.span(node),
            describe(node),
            "a state that ends the loop is `{terminal: true}`",
        )
        return StateSpec(name=name, span=place, spans=Places(self.document, {"name": key}), flawed=True)

    def evaluator(self, node: Node, path: str) -> Any:
        known = ", ".join(EVALUATORS)
        place = self.document.span(node)
        if not isinstance(node, Mapping):
            return self.wrong(Type("spec"), node, path, f"such as `{{type: {next(iter(EVALUATORS))}}}`")
        given = node.entries.get("type")
        if given is None:
            return self.error(
                "missing-field", "an evaluator needs `type`", place, "begins here", f"one of {known}"
            )
        _, type_node = given
        type_name = type_node.value if isinstance(type_node, Scalar) else None
        if not isinstance(type_name, str) or type_name not in EVALUATORS:
            text = type_node.text if isinstance(type_node, Scalar) else ""
            help = suggest(text, EVALUATORS, "evaluators")
            return self.error(
                "unknown-evaluator", f"no evaluator `{text}`", self.document.span(type_node), "", help
            )
        place = self.document.span(type_node)
        spec = self.block(EVALUATORS[type_name], node, place, f"evaluator `{type_name}`", ignored="type")
        return BAD if spec is None else spec

    # --- values -----------------------------------------------------------------------------

    def value(self, type: Type, node: Node, path: str, places: dict[str, Node]) -> Any:
        """The value of a node by its type, or BAD; the places of its parts go into `places`."""
        match type.kind:
            case "text" | "template" | "target":
                return self.text(type, node, path)
            case "named":
                if isinstance(node, Mapping):
                    return self.spec(Type("spec", specs=type.specs), node, path)
                return self.text(type, node, path)
            case "action":
                if isinstance(node, Mapping):
                    from .paradigm_schema import CallSpec

                    return self.spec(Type("spec", specs=(CallSpec,)), node, path)
                return self.text(type, node, path)
            case "boolean":
                if isinstance(node, Scalar) and isinstance(node.value, bool):
                    return node.value
                said = node.text if isinstance(node, Scalar) else ""
                return self.wrong(type, node, path, _BOOLEAN_HELP.get(said.lower()))
            case "integer" | "number" | "measure":
                return self.number(type, node, path)
            case "choice":
                text = self.text(Type("text"), node, path)
                if text is BAD or text in type.choices:
                    return text
                is_shell = "shell" in type.choices and re.fullmatch(
                    r"(?:\w*sh|shell\w*|cmd|command|run)", text
                )
                help = "did you mean `shell`?" if is_shell else suggest(text, type.choices, "it may be")
                return self.error(
                    "unknown-value", f"`{path}` cannot be `{text}`", self.document.span(node), "", help
                )
            case "json":
                return self.json(node, path)
            case "arguments":
                if isinstance(node, Scalar):
                    return self.wrong(type, node, path, f"write `[{node.text}]`" if node.text else None)
                item = Type("list" if isinstance(node, Sequence) else "map", Type("json"))
                return self.value(item, node, path, places)
            case "list":
                return self.list(type, node, path, places)
            case "map":
                return self.map(type, node, path, places)
        return self.spec(type, node, path)

    def list(self, type: Type, node: Node, path: str, places: dict[str, Node]) -> Any:
        assert type.item is not None
        if not isinstance(node, Sequence):
            single = isinstance(node, Scalar) and node.value is not None
            help = (
                f"write `[{node.text}]`"
                if single and isinstance(node, Scalar) and len(node.text) < 40
                else None
            )
            return self.wrong(type, node, path, help)
        values = []
        for i, item in enumerate(node.items):
            places[f"{path}[{i}]"] = item
            values.append(self.value(type.item, item, f"{path}[{i}]", places))
        if type.least and not values:
            return self.error(
                "empty-list", f"`{path}` is empty", self.document.span(node), "nothing is in it"
            )
        return BAD if any(value is BAD for value in values) else tuple(values)

    def map(self, type: Type, node: Node, path: str, places: dict[str, Node]) -> Any:
        assert type.item is not None
        if not isinstance(node, Mapping):
            return self.wrong(type, node, path)
        values: dict[str, Any] = {}
        for key, (key_node, item) in node.entries.items():
            if type.item.specs == (StateSpec,):
                values[key] = self.state(key, key_node, item)
                continue
            places[f"key:{path}.{key}"] = key_node
            places[f"{path}.{key}"] = item
            values[key] = self.value(type.item, item, f"{path}.{key}", places)
        return BAD if any(value is BAD for value in values.values()) else values

    def spec(self, type: Type, node: Node, path: str) -> Any:
        if issubclass(type.specs[0], Evaluator):
            return self.evaluator(node, path)
        if not isinstance(node, Mapping):
            return self.wrong(type, node, path)
        found = self.block(type.specs[0], node, self.document.span(node), f"`{path}`")
        return BAD if found is None else found
