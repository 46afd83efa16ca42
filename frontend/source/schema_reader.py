"""Reader of documents by their schema (`schema`). Reports everything that does not fit, with its position.

An invalid value is reported and left out, and its block is marked `flawed`, so that later checks can still
examine the rest. Must not contain: checks that need more than one key, or the keys of any particular file
(`loop.reader` extends the reader for loops).
"""

from __future__ import annotations

import math
import re
from typing import Any

from ...ir.diagnostics import Diagnostic, DiagnosticId, labelled, nearest, suggest
from ...ir.python_internals import late_pattern
from ...ir.scalars import read_scalar
from ...ir.spans import Span
from .document import Document, Mapping, Node, NodeSpans, Scalar, Sequence
from .schema import MAX_SECONDS, Field, Spec, Type, fields_of, required_of


class Bad:
    """The type of `BAD`."""


# Placeholder for an invalid value that was reported.
BAD = Bad()

_KIND_NOUNS = {
    "text": "a text",
    "template": "a text",
    "scalar": "a text",
    "target": "the name of a state",
    "integer": "a whole number",
    "number": "a number",
    "measure": "a number or a template",
    "boolean": "true or false",
    "choice": "a word",
    "list": "a list",
    "map": "a mapping",
    "spec": "a mapping",
    "tagged": "a mapping",
}
# Spellings that other formats, for example YAML 1.1, read as a boolean.
_BOOLEAN_HELP = {
    **dict.fromkeys(("true", "yes", "on", "y", "1"), "write `true`"),
    **dict.fromkeys(("false", "no", "off", "n", "0"), "write `false`"),
}


def describe(node: Node) -> str:
    """Describe the kind of value that the text contains, as a label."""
    if isinstance(node, Sequence):
        return "this is a list"
    if isinstance(node, Mapping):
        return "this is a mapping"
    if node.value is None:
        return "this is null" if node.text else "no value"
    if isinstance(node.value, bool):
        return "this is a boolean"
    return "this is a text" if isinstance(node.value, str) else "this is a number"


def wanted(type: Type) -> str:
    """A type in words, for messages: "a number", "a list or a mapping"."""
    if type.expected:
        return type.expected
    if type.kind == "either":
        return " or ".join(dict.fromkeys(wanted(option) for option in type.options))
    return _KIND_NOUNS[type.kind]


def is_empty(node: Node) -> bool:
    """Whether a key has no value."""
    return isinstance(node, Scalar) and node.value is None


class SchemaReader:
    """Reader of the blocks and values of one document; reports diagnostics to the document."""

    def __init__(self, document: Document) -> None:
        self.document = document

    def error(
        self, id: DiagnosticId, message: str, span: Span | None, label: str = "", help: str | None = None
    ) -> Bad:
        self.document.report(Diagnostic(id, message, span, label, help))
        return BAD

    def warn(
        self, id: DiagnosticId, message: str, span: Span | None, label: str = "", help: str | None = None
    ) -> None:
        self.document.report(Diagnostic(id, message, span, label, help, "warning"))

    def wrong_type(self, type: Type, node: Node, path: str, help: str | None = None) -> Bad:
        """Report a value of the wrong type."""
        message = f"`{path}` should be {wanted(type)}"
        return self.error("wrong-type", message, self.document.span(node), describe(node), help or type.hint)

    # --- hooks for particular files -------------------------------------------------------------

    def read_other_keys(
        self,
        cls: type[Spec],
        others: list[tuple[str, Scalar, Node]],
        values: dict[str, Any],
        places: dict[str, Node],
    ) -> list[tuple[str, Scalar, Node]]:
        """Hook: read keys that are not fields of `cls`. Returns the keys that remain unknown."""
        return others

    def help_for_common_mistake(self, key: str, fields: dict[str, Field]) -> str | None:
        """Hook: help for a key that certainly belongs to another block than one with these fields, or
        None.
        """
        return None

    def help_for_misplaced_key(self, key: str) -> str | None:
        """Hook: help for a key that belongs to another block, or None."""
        return None

    def substitute(self, cls: type[Spec], field: Field) -> Any:
        """Hook: substitute for a required field that is missing or invalid. BAD: the block cannot be
        built.
        """
        return BAD

    def unknown_class(self, noun: str, text: str, place: Span, help: str | None) -> Bad:
        """Report a `tag` that selects no class."""
        return self.error("unknown-value", f"no {noun} `{text}`", place, "", help)

    # --- blocks ---------------------------------------------------------------------------------

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
        """Read a mapping as an object of `cls`; None if a required key is missing or invalid.

        Args:
            place: where to report a missing key; None: at `named`.
            what: term for the block in messages.
            ignored: a key that the caller has read.
            named: the key that names the block.
            fixed: values of fields that do not come from the mapping.
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
            if is_empty(value_node) and field.type.kind not in ("json", "node") and not field.type.nullable:
                if not field.required:
                    self.warn(
                        "empty-value",
                        f"`{key}` is empty",
                        document.span(key_node),
                        "has no value",
                        "leave it out",
                    )
                continue
            value = values[key] = self.value(field.type, value_node, key, places)
            flawed = flawed or value is BAD
        if others:
            for key, key_node, _ in self.read_other_keys(cls, others, values, places):
                flawed = True
                self.unknown_key(key, key_node, what, fields)
            flawed = flawed or any(value is BAD for value in values.values())
        if cls.any_of and not any(key in places for key in cls.any_of):
            flawed = True
            keys = " or ".join(f"`{key}`" for key in cls.any_of)
            self.error("missing-field", f"{what} needs {keys}", place or document.span(named or node))
        if flawed or not required_of(cls) <= values.keys():
            flawed = True
            if not self.fill(cls, values, places, what, place, named or node):
                return None
        return cls(spans=NodeSpans(document, places), flawed=flawed, **values)

    def fill(
        self,
        cls: type[Spec],
        values: dict[str, Any],
        places: dict[str, Node],
        what: str,
        place: Span | None,
        node: Node,
    ) -> bool:
        """Report missing fields, and replace missing and invalid ones in `values`.

        Returns False if the block cannot be built. place: where to report a missing key; None: at `node`.
        """
        is_lost = False
        for key, field in fields_of(cls).items():
            if key not in values and field.required:
                values[key] = BAD
                given = places.get(f"key:{key}")
                label = "begins here" if given is None else "has no value"
                where = place
                if given is not None or where is None:
                    where = self.document.span(given or node)
                self.error("missing-field", f"{what} needs `{key}`", where, label, f"`{key}`: {field.doc}")
            if values.get(key) is BAD:
                if not field.required:
                    del values[key]
                else:
                    values[key] = self.substitute(cls, field)
                    is_lost = is_lost or values[key] is BAD
        return not is_lost

    def unknown_key(self, key: str, node: Scalar, what: str, fields: dict[str, Field]) -> None:
        """Report a key that the block does not have."""
        help = suggest(key, fields, "it may have")
        if key == "<<":
            help = "YAML 1.2 has no merge keys; write the keys out"
        else:
            help = self.help_for_common_mistake(key, fields) or self.help_for_misplaced_key(key) or help
        self.error(
            "unknown-key", f"{what} has no key `{key[:200]}`", self.document.span(node), "unknown", help
        )

    def named_block(self, cls: type[Spec], name: str, key: Scalar, node: Node) -> Any:
        """Read an entry of a map as a block that is named by its key."""
        what = f"{cls.noun} `{name[:80]}`"
        if isinstance(node, Mapping):
            span = self.document.span_at(key.start, node.end)
            found = self.block(cls, node, None, what, named=key, name=name, span=span)
            return BAD if found is None else found
        place = self.document.span(key)
        help = getattr(cls, "example", None)
        if isinstance(node, Sequence):
            help = "write its keys below one another, without `- `"
        at = place if isinstance(node, Scalar) and not node.text else self.document.span(node)
        self.error("wrong-type", f"{what} should be a mapping", at, describe(node), help)
        if required_of(cls):
            return BAD
        return cls(name=name, span=place, spans=NodeSpans(self.document, {"name": key}), flawed=True)  # type: ignore[call-arg, unused-ignore]

    def tagged(self, type: Type, node: Node, path: str) -> Any:
        """Read a block whose class is selected by one of its keys."""
        classes = {cls.type: cls for cls in type.specs}
        noun, tag = type.specs[0].noun, type.tag
        article = "an" if noun[0] in "aeiou" else "a"
        place = self.document.span(node)
        if not isinstance(node, Mapping):
            return self.wrong_type(type, node, path, f"such as `{{{tag}: {next(iter(classes))}}}`")
        given = node.entries.get(tag)
        if given is None:
            help = f"one of {', '.join(classes)}"
            return self.error("missing-field", f"{article} {noun} needs `{tag}`", place, "begins here", help)
        _, tag_node = given
        place = self.document.span(tag_node)
        text = tag_node.text if isinstance(tag_node, Scalar) else ""
        name: Any = tag_node.value if isinstance(tag_node, Scalar) else None
        if not isinstance(name, str) or name not in classes:
            return self.unknown_class(noun, text, place, suggest(text, classes, f"{noun}s"))
        spec = self.block(classes[name], node, place, f"{noun} `{name}`", ignored=tag)
        return BAD if spec is None else spec

    # --- values ---------------------------------------------------------------------------------

    def value(self, type: Type, node: Node, path: str, places: dict[str, Node]) -> Any:
        """Read a node by its type; BAD if it does not fit. Adds the nodes of its parts to `places`."""
        if type.nullable and is_empty(node):
            return None
        match type.kind:
            case "text" | "template" | "target":
                return self.text(type, node, path)
            case "scalar":
                if isinstance(node, Scalar) and node.value is not None:
                    return node.value if isinstance(node.value, str) else node.text
                return self.wrong_type(type, node, path)
            case "boolean":
                if isinstance(node, Scalar) and isinstance(node.value, bool):
                    return node.value
                said = node.text if isinstance(node, Scalar) else ""
                return self.wrong_type(type, node, path, _BOOLEAN_HELP.get(said.lower()))
            case "integer" | "number" | "measure":
                return self.number(type, node, path)
            case "choice":
                return self.choice(type, node, path)
            case "json":
                return self.json(node, path)
            case "node":
                return node
            case "list":
                return self.list(type, node, path, places)
            case "map":
                return self.map(type, node, path, places)
            case "either":
                return self.either(type, node, path, places)
            case "tagged":
                return self.tagged(type, node, path)
        return self.spec(type, node, path)

    def either(self, type: Type, node: Node, path: str, places: dict[str, Node]) -> Any:
        """Read a value that has one of several types, selected by the form of the node."""
        form = "list" if isinstance(node, Sequence) else "map" if isinstance(node, Mapping) else "scalar"
        fitting = [option for option in type.options if _FORM_BY_KIND.get(option.kind, "scalar") == form]
        if len(fitting) > 1 and isinstance(node, Mapping):
            return self.block_by_key(fitting, node, path)
        if len(fitting) > 1 and isinstance(node, Scalar):
            # A boolean or an integer selects the option of that kind, if there is one.
            is_boolean = isinstance(node.value, bool)
            fitting = [option for option in fitting if (option.kind == "boolean") == is_boolean] or fitting
            is_number = isinstance(node.value, int | float)
            fitting = [option for option in fitting if (option.kind == "integer") == is_number] or fitting
        if fitting:
            return self.value(fitting[0], node, path, places)
        is_short = isinstance(node, Scalar) and node.text and any(o.kind == "list" for o in type.options)
        return self.wrong_type(type, node, path, f"write `[{node.text}]`" if is_short else None)  # type: ignore[union-attr]

    def block_by_key(self, options: list[Type], node: Mapping, path: str) -> Any:
        """Read one of several blocks, selected by the required key that is given."""
        keys = {key: option for option in options for key in required_of(option.specs[0])}
        given = [key for key in node.entries if key in keys]
        place = self.document.span(node)
        if len(given) == 1:
            spec = self.block(keys[given[0]].specs[0], node, place, f"`{path}`")
            return BAD if spec is None else spec
        listed = ", ".join(f"`{key}`" for key in keys)
        if given:
            again = self.document.span(node.entries[given[1]][0])
            message = f"`{path}` has both `{given[0]}` and `{given[1]}`"
            first = labelled(self.document.span(node.entries[given[0]][0]), "first given here")
            help = f"keep one of {listed}"
            self.document.report(
                Diagnostic("contradictory-keys", message, again, "given too", help, related=first)
            )
            return BAD
        unknown = next(iter(node.entries), "")
        help = "add one of them"
        if unknown and nearest(unknown, keys) is not None:
            help = suggest(unknown, keys, "keys") or help
        return self.error(
            "missing-field", f"`{path}` has none of the keys {listed}", place, "begins here", help
        )

    def choice(self, type: Type, node: Node, path: str) -> Any:
        text = self.text(Type("text"), node, path)
        if text is BAD or text in type.choices:
            return text
        help = suggest(text, type.choices, "it may be")
        message = f"`{path}` cannot be `{text[:80]}`"
        return self.error("unknown-value", message, self.document.span(node), "", help)

    def text(self, type: Type, node: Node, path: str) -> Any:
        if not isinstance(node, Scalar):
            return self.wrong_type(type, node, path, self.text_help(type, node))
        if not isinstance(node.value, str):
            return self.wrong_type(
                type, node, path, f'write it in quotes: "{node.text}"' if node.text else None
            )
        if type.least and not node.value.strip():
            return self.error("empty-text", f"`{path}` is empty", self.document.span(node), "no content")
        if type.pattern and re.fullmatch(type.pattern, node.value) is None:
            return self.wrong_type(type, node, path)
        if node.plain and _TYPOGRAPHIC_QUOTES.fullmatch(node.value):
            help = "quote a text with \" or '"
            self.warn(
                "stray-quote",
                "these quotation marks are part of the text",
                self.document.span(node),
                "",
                help,
            )
        return node.value

    def text_help(self, type: Type, node: Node) -> str | None:
        """Help for a list or a mapping where a text is expected."""
        if type.kind != "target" and self.document.text[node.start : node.start + 1] in ("[", "{"):
            return "put the text in quotes: `[` and `{` begin a list and a mapping"
        if type.kind == "template" and isinstance(node, Sequence):
            return "write one text; several commands are lines below `|`, indented"
        return "write one name" if type.kind == "target" else None

    def number(self, type: Type, node: Node, path: str) -> Any:
        if not isinstance(node, Scalar):
            return self.wrong_type(type, node, path)
        value = node.value
        if isinstance(value, str):
            if type.kind == "measure" and "${" in value:
                return value
            number = _read_number(value)
            if number is None or type.kind != "measure":
                help = "write it without quotes" if number is not None else _unit_help(value, type)
                return self.wrong_type(type, node, path, help)
            value = number
        if value is None or isinstance(value, bool):
            return self.wrong_type(type, node, path)
        place = self.document.span(node)
        if isinstance(value, float) and not math.isfinite(value):
            return self.error("out-of-range", f"`{path}` should be finite", place)
        if type.kind == "integer":
            if value != int(value):
                return self.wrong_type(type, node, path)
            value = int(value)
        bounds = (
            (type.least is not None and value < type.least, "at least", type.least),
            (type.above is not None and value <= type.above, "more than", type.above),
            (type.most is not None and value > type.most, "at most", type.most),
        )
        for outside, words, bound in bounds:
            if outside:
                return self.error("out-of-range", f"`{path}` should be {words} {bound:,.15g}", place)
        return value

    def json(self, node: Node, path: str) -> Any:
        """Read plain data; a number that JSON cannot represent is an error."""
        if isinstance(node, Scalar):
            if isinstance(node.value, float) and not math.isfinite(node.value):
                return self.error("out-of-range", f"`{path}` should be finite", self.document.span(node))
            return node.value
        items = (
            [(str(i), item) for i, item in enumerate(node.items)]
            if isinstance(node, Sequence)
            else [(key, item) for key, (_, item) in node.entries.items()]
        )
        values = {key: self.json(item, f"{path}.{key}") for key, item in items}
        if any(value is BAD for value in values.values()):
            return BAD
        return list(values.values()) if isinstance(node, Sequence) else values

    def list(self, type: Type, node: Node, path: str, places: dict[str, Node]) -> Any:
        assert type.item is not None
        if not isinstance(node, Sequence):
            is_short = isinstance(node, Scalar) and node.value is not None and len(node.text) < 40
            help = f"write `[{node.text}]`" if is_short and isinstance(node, Scalar) else None
            return self.wrong_type(type, node, path, help)
        if type.most is not None and len(node.items) > type.most:
            return self.too_many(type, path, node.items[int(type.most)])
        values = []
        for i, item in enumerate(node.items):
            places[f"{path}[{i}]"] = item
            values.append(self.value(type.item, item, f"{path}[{i}]", places))
        if type.least and not values:
            return self.error("empty-list", f"`{path}` is empty", self.document.span(node), "no content")
        if type.partial:
            return tuple(value for value in values if value is not BAD)
        return BAD if any(value is BAD for value in values) else tuple(values)

    def too_many(self, type: Type, path: str, node: Node) -> Bad:
        message = f"`{path}` has more than {type.most:,.0f} items"
        return self.error("too-many-items", message, self.document.span(node))

    def map(self, type: Type, node: Node, path: str, places: dict[str, Node]) -> Any:
        assert type.item is not None
        if not isinstance(node, Mapping):
            return self.wrong_type(type, node, path)
        if type.most is not None and len(node.entries) > type.most:
            return self.too_many(type, path, list(node.entries.values())[int(type.most)][0])
        cls = type.item.specs[0] if type.item.kind == "spec" else None
        values: dict[str, Any] = {}
        for key, (key_node, item) in node.entries.items():
            if type.pattern and re.fullmatch(type.pattern, key) is None:
                place = self.document.span(key_node)
                values[key] = self.error(
                    "bad-name", f"`{key[:80]}` cannot be a name in `{path}`", place, "", type.expected
                )
            elif cls is not None and cls.keyed:
                values[key] = self.named_block(cls, key, key_node, item)
            else:
                places[f"key:{path}.{key}"] = key_node
                places[f"{path}.{key}"] = item
                values[key] = self.value(type.item, item, f"{path}.{key}", places)
        if type.partial:
            return {key: value for key, value in values.items() if value is not BAD}
        return BAD if any(value is BAD for value in values.values()) else values

    def spec(self, type: Type, node: Node, path: str) -> Any:
        cls = type.specs[0]
        if not isinstance(node, Mapping):
            return self.wrong_type(type, node, path, getattr(cls, "example", None))
        found = self.block(cls, node, self.document.span(node), cls.noun or f"`{path}`")
        return BAD if found is None else found


# Kinds of types that are not written as a scalar, and their forms.
_FORM_BY_KIND = {"list": "list", "map": "map", "spec": "map", "tagged": "map"}


_TYPOGRAPHIC_QUOTES = late_pattern(r"(?s)[“„‘«].*[”“’»]")
_WITH_UNIT = late_pattern(r"\s*\$?(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


def _unit_help(text: str, type: Type) -> str | None:
    """Help for a number with a unit."""
    match = _WITH_UNIT.fullmatch(text) if len(text) < 40 else None
    if match is None:
        return None
    unit = match[2].lower()
    for start in range(len(unit), 0, -1):
        if type.most == MAX_SECONDS and unit[:start] in _SECONDS:
            return f"write the seconds, without a unit: {float(match[1]) * _SECONDS[unit[:start]]:.15g}"
    return f"write only the number: {match[1]}"


def _read_number(text: str) -> int | float | None:
    """The number in a quoted text, or None."""
    try:
        value = read_scalar(text.strip())
    except ValueError:
        return None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
