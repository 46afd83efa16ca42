"""`.loops/tools.yaml`: a project's own tools, to signatures.

    tools:
      - name: math:add
        description: The sum of two numbers.
        parameters:
          x: number
          y: {type: number, required: false, default: 1}
        command: [python3, -c, "print(${x} + ${y})"]
        output: json
        timeout: 10

Everything wrong with the file comes out with its place. What a `command` means is `tool_commands`'s.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ...ir.diagnostics import Diagnostic, suggest
from ...ir.spans import Source
from ..source.document import Document, Mapping, Node, Refused, Scalar, Sequence
from ..source.yaml_tree import read_document
from .signature import (
    MAX_PARAMETERS,
    POLICIES,
    TYPES,
    Parameter,
    Signature,
    fits,
    is_parameter_name,
    refused_name,
    type_named,
)
from .tool_command import argv_pieces, shell_pieces

_KEYS = ("name", "description", "parameters", "command", "python", "timeout", "output", "on_unknown")
_PARAMETER_KEYS = ("name", "type", "required", "default", "description")
OUTPUTS = ("text", "json", "result")
MAX_TOOLS = 1000
MAX_TIMEOUT = 7 * 24 * 3600
_ENTRY = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def read_tools(source: Source) -> tuple[list[Signature], list[Diagnostic]]:
    """The tools that a file declares, and what is wrong with it. A tool with an error is left out."""
    document = read_document(source)
    tools: list[Signature] = []
    try:
        if document.root is not None:
            tools = _Reader(document).tools(document.root)
    except Refused:
        pass
    return tools, document.diagnostics


class _Reader:
    def __init__(self, document: Document) -> None:
        self.document = document

    # --- findings -----------------------------------------------------------------------------

    def fail(self, id: str, message: str, node: Node, label: str = "", help: str | None = None) -> None:
        self.document.fail(id, message, self.document.span(node), label, help)

    def wrong(self, node: Node, what: str, wanted: str, help: str | None = None) -> None:
        self.fail("wrong-type", f"{what} is {wanted}", node, "not this", help)

    def entries(self, node: Mapping, known: Iterable[str], what: str) -> dict[str, Node]:
        known = tuple(known)
        found = {}
        for name, (key, value) in node.entries.items():
            if name in known:
                found[name] = value
            else:
                help = suggest(name, known, "it may have")
                self.fail("unknown-key", f"{what} has no `{name[:80]}`", key, help=help)
        return found

    def text(self, node: Node, what: str) -> str | None:
        if isinstance(node, Scalar) and isinstance(node.value, str):
            return node.value
        self.wrong(node, what, "a text")
        return None

    # --- tools --------------------------------------------------------------------------------

    def tools(self, root: Node) -> list[Signature]:
        if isinstance(root, Mapping):
            rows = self.entries(root, ("tools",), "the file").get("tools")
            if rows is None:
                self.fail("missing-key", "the file has no `tools`", root, help="write `tools:` and a list")
                return []
            root = rows
        if not isinstance(root, Sequence):
            if not (isinstance(root, Scalar) and root.value is None):
                self.wrong(root, "`tools`", "a list of tools")
            return []
        if len(root.items) > MAX_TOOLS:
            self.fail("too-many-tools", f"there are more than {MAX_TOOLS} tools", root.items[MAX_TOOLS])
            return []
        found: dict[str, Signature] = {}
        for item in root.items:
            before = len(self.document.diagnostics)
            tool = self.tool(item)
            if tool is None:
                continue
            if tool.name in found:
                first = found[tool.name].span
                where = f"it was declared in line {first.line}" if first is not None else None
                self.fail("repeated-tool", f"`{tool.name}` is declared twice", item, help=where)
            elif not any(finding.is_error for finding in self.document.diagnostics[before:]):
                found[tool.name] = tool
        return list(found.values())

    def tool(self, node: Node) -> Signature | None:
        if not isinstance(node, Mapping):
            self.wrong(node, "a tool", "a mapping with a `name`")
            return None
        given = self.entries(node, _KEYS, "a tool")
        name = self.name(node, given)
        doc = self.text(given["description"], "`description`") if "description" in given else ""
        parameters = self.parameters(given["parameters"]) if "parameters" in given else ()
        if name is None:
            return None
        definition = self.definition(node, given, parameters)
        output = self.choice(given, "output", OUTPUTS)
        if "output" in given and "python" in given:
            message = "a function gives a value, which has no `output`"
            self.fail("contradictory-keys", message, given["output"], help="leave `output` out")
        if output is not None:
            definition["output"] = output
        return Signature(
            name,
            "tool",
            parameters,
            "tool",
            definition,
            (doc or "").strip(),
            self.timeout(given.get("timeout")),
            self.choice(given, "on_unknown", POLICIES),
            self.document.source,
            self.document.span(node),
        )

    def name(self, node: Mapping, given: dict[str, Node]) -> str | None:
        if "name" not in given:
            self.fail("missing-key", "a tool needs a `name`", node)
            return None
        name = self.text(given["name"], "`name`")
        if name is None:
            return None
        why = refused_name(name)
        if why is not None:
            self.fail("bad-name", f"a tool cannot be called `{name[:100]}`: {why}", given["name"])
            return None
        return name

    def choice(self, given: dict[str, Node], key: str, choices: tuple[str, ...]) -> str | None:
        """One of a few words, None where nothing is said."""
        word = self.text(given[key], f"`{key}`") if key in given else None
        if word is not None and word not in choices:
            help = suggest(word, choices, "it is one of")
            self.fail("unknown-choice", f"`{key}` cannot be `{word[:80]}`", given[key], help=help)
        return word

    def timeout(self, node: Node | None) -> float | None:
        if node is None:
            return None
        value: Any = node.value if isinstance(node, Scalar) else None
        if not fits(value, "number") or not 0 < value <= MAX_TIMEOUT:
            self.wrong(node, "`timeout`", f"a number of seconds above 0, at most {MAX_TIMEOUT}")
            return None
        assert isinstance(value, int | float)
        return value

    # --- parameters ---------------------------------------------------------------------------

    def parameters(self, node: Node) -> tuple[Parameter, ...]:
        found: dict[str, Parameter] = {}
        rows: list[tuple[Node, Node | None]] = []
        if isinstance(node, Mapping):
            rows = [(key, value) for key, value in node.entries.values()]
        elif isinstance(node, Sequence):
            for item in node.items:
                if isinstance(item, Mapping) and "name" in item.entries:
                    rows.append((item.entries["name"][1], item))
                elif isinstance(item, Mapping):
                    self.fail("missing-key", "a parameter needs a `name`", item)
                else:
                    rows.append((item, None))
        elif not (isinstance(node, Scalar) and node.value is None):
            self.wrong(node, "`parameters`", "a mapping from names to types, or a list")
        if len(rows) > MAX_PARAMETERS:
            message = f"there are more than {MAX_PARAMETERS} parameters"
            self.fail("too-many-parameters", message, rows[MAX_PARAMETERS][0])
            return ()
        for name_node, about in rows:
            name = self.text(name_node, "the name of a parameter")
            if name is None:
                continue
            if not is_parameter_name(name):
                help = "a name is letters, digits, `_` and `-`"
                self.fail("bad-name", f"a parameter cannot be called `{name[:100]}`", name_node, help=help)
            elif name in found:
                self.fail("repeated-parameter", f"the parameter `{name}` stands twice", name_node)
            else:
                found[name] = self.parameter(name, about)
        return tuple(found.values())

    def parameter(self, name: str, node: Node | None) -> Parameter:
        if node is None or (isinstance(node, Scalar) and node.value is None):
            return Parameter(name)
        if not isinstance(node, Mapping):
            return Parameter(name, self.type(node))
        given = self.entries(node, _PARAMETER_KEYS, "a parameter")
        type = self.type(given["type"]) if "type" in given else "any"
        doc = self.text(given["description"], "`description`") if "description" in given else ""
        is_required = "default" not in given
        if "required" in given:
            value = given["required"]
            if not isinstance(value, Scalar) or not isinstance(value.value, bool):
                self.wrong(value, "`required`", "true or false")
            elif value.value and "default" in given:
                message = f"`{name}` is required, so its default is never used"
                self.fail("contradictory-keys", message, given["default"])
            else:
                is_required = value.value
        default = self.document.plain(given["default"]) if "default" in given else None
        if default is not None and not fits(default, type):
            self.wrong(given["default"], f"the default of `{name}`", TYPES[type])
        return Parameter(name, type, is_required, default, (doc or "").strip())

    def type(self, node: Node) -> str:
        word = self.text(node, "a type")
        type = type_named(word) if word is not None else "any"
        if type is None:
            assert word is not None
            help = suggest(word, TYPES, "types are")
            self.fail("unknown-type", f"there is no type `{word[:80]}`", node, help=help)
            return "any"
        return type

    # --- what it does -------------------------------------------------------------------------

    def definition(
        self, node: Mapping, given: dict[str, Node], parameters: tuple[Parameter, ...]
    ) -> dict[str, Any]:
        if ("command" in given) == ("python" in given):
            message = "a tool has a `command` or a function (`python`)"
            what = "not both" if "command" in given else "this has neither"
            self.fail("missing-key", message, node, what, "write `command: [program, argument]`")
            return {}
        if "python" in given:
            entry = self.text(given["python"], "`python`")
            if entry is not None and _ENTRY.fullmatch(entry) is None:
                self.fail("bad-entry", "`python` names a function as `module:function`", given["python"])
            return {"python": entry}
        command = given["command"]
        if isinstance(command, Sequence):
            return {"argv": argv_pieces(self.document, command, parameters)}
        text = self.text(command, "`command`")
        if text is None:
            return {}
        if not text.strip():
            self.fail("empty-command", "`command` is empty", command)
            return {}
        return {"shell": shell_pieces(self.document, command, text, parameters)}
