"""Reader of `.loops/tools.yaml`: a project's own tools to signatures.

    tools:
      - name: math:add
        description: The sum of two numbers.
        parameters:
          x: number
          y: {type: number, required: false, default: 1}
        command: [python3, -c, "print(${x} + ${y})"]
        output: json
        timeout: 10

Every error is reported with its position. `tool_command` parses the text of a `command`.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ...ir.diagnostics import Diagnostic, labelled
from ...ir.effects import ON_UNKNOWN
from ...ir.spans import Source
from ..source.document import Mapping, Node, NodeSpans, Refused, Sequence
from ..source.schema import BOOLEAN, JSON, TEXT, Spec, Type, block, choice, fields_of, optional, required
from ..source.schema_reader import BAD, SchemaReader
from ..source.yaml_tree import read_document
from .names import is_parameter_name, name_problem
from .signature import MAX_PARAMETERS, TYPE_NAMES, TYPES, Parameter, Signature, fits, parse_type
from .tool_command import argv_pieces, shell_pieces

OUTPUTS = ("text", "json", "result")
MAX_TOOLS = 1000
MAX_TIMEOUT = 7 * 24 * 3600
_TYPE = choice(*TYPE_NAMES)


class ParameterSpec(Spec):
    """A parameter of a tool."""

    noun: ClassVar[str] = "a parameter"

    type: str = optional(_TYPE, "Type of the values; absent: any value.", "any")
    required: bool | None = optional(
        BOOLEAN, "Whether a call must give it; absent: true, unless it has a default."
    )
    default: Any = optional(JSON, "Value if a call leaves it out.")
    description: str = optional(Type("text"), "What it is for.", "")


class NamedParameterSpec(ParameterSpec):
    """A parameter in a list, with its name."""

    name: str = required(TEXT, "Its name: letters, digits, `_` and `-`.")


_PARAMETERS = Type(
    "either",
    options=(
        Type(
            "map", Type("either", options=(_TYPE, block(ParameterSpec)), nullable=True), most=MAX_PARAMETERS
        ),
        Type("list", Type("either", options=(TEXT, block(NamedParameterSpec))), most=MAX_PARAMETERS),
    ),
    expected="a mapping from names to types, or a list",
    nullable=True,
)


class ToolSpec(Spec):
    """A tool: a command, or a function of Python."""

    noun: ClassVar[str] = "a tool"
    json_schema: ClassVar[dict[str, Any]] = {"oneOf": [{"required": ["command"]}, {"required": ["python"]}]}

    name: str = required(TEXT, "The name of the tool in programs.")
    description: str = optional(Type("text"), "What it does.", "")
    parameters: Any = optional(_PARAMETERS, "Its parameters: names to types, or a list.", ())
    command: Any = optional(
        Type("either", options=(Type("text"), Type("list", Type("node"))), expected="a text or a list"),
        "A program with its arguments, or a text for the shell; `${name}` is a parameter's value.",
    )
    python: str | None = optional(
        Type(
            "text",
            pattern=r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*",
            expected="a function, as `module:function`",
        ),
        "A function of the project, as `module:function`.",
    )
    timeout: float | None = optional(Type("number", above=0, most=MAX_TIMEOUT), "Time limit in seconds.")
    output: str | None = optional(choice(*OUTPUTS), "Format of its standard output; absent: `text`.")
    on_unknown: str | None = optional(
        choice(*ON_UNKNOWN), "What a resumed run does with a call that is in doubt; absent: `rerun`."
    )


class ToolsFile(Spec):
    """The tools of a project."""

    noun: ClassVar[str] = "the file"

    tools: tuple[ToolSpec, ...] = required(
        Type("list", block(ToolSpec), most=MAX_TOOLS, nullable=True, partial=True), "The tools."
    )


def read_tools(source: Source) -> tuple[list[Signature], list[Diagnostic]]:
    """Read the tools that a file declares. A tool with an error is left out."""
    document = read_document(source)
    tools: list[Signature] = []
    try:
        if document.root is not None:
            tools = _Reader(document).tools(document.root)
    except Refused:
        pass
    return tools, document.diagnostics


class _Reader(SchemaReader):
    def tools(self, root: Node) -> list[Signature]:
        if isinstance(root, Mapping):
            spec = self.block(ToolsFile, root, self.document.span(root), ToolsFile.noun)
            given: Any = spec.tools if isinstance(spec, ToolsFile) else None
        else:
            given = self.value(fields_of(ToolsFile)["tools"].type, root, "tools", {})
        found: dict[str, Signature] = {}
        for spec in () if given is None or given is BAD else given:
            tool = self.tool(spec)
            if tool is None:
                continue
            if tool.name in found:
                first = found[tool.name].span
                message, related = f"`{tool.name}` is declared twice", labelled(first, "first declared here")
                finding = Diagnostic("repeated-tool", message, tool.span, "declared again", related=related)
                self.document.report(finding)
            else:
                found[tool.name] = tool
        return list(found.values())

    def tool(self, spec: ToolSpec) -> Signature | None:
        """The signature of a tool; None if it has an error."""
        known = len(self.document.diagnostics)
        why = name_problem(spec.name)
        if why is not None:
            message = f"a tool cannot be called `{spec.name[:100]}`: {why}"
            self.error("bad-name", message, spec.spans["name"])
        parameters = self.parameters(spec)
        definition = self.definition(spec, parameters)
        if spec.output is not None and spec.python is not None:
            message = "a Python function returns a value and has no `output`"
            self.error("contradictory-keys", message, spec.spans["output"], "", "remove `output`")
        elif spec.output is not None:
            definition["output"] = spec.output
        if spec.flawed or any(finding.is_error for finding in self.document.diagnostics[known:]):
            return None
        return Signature(
            spec.name,
            "tool",
            parameters,
            "tool",
            definition,
            spec.description.strip(),
            spec.timeout,
            spec.on_unknown,
            self.document.source,
            spec.span,
        )

    def parameters(self, spec: ToolSpec) -> tuple[Parameter, ...]:
        given = spec.parameters or ()
        rows: list[tuple[str, Any, str]] = []
        if isinstance(given, dict):
            rows = [(name, about, f"key:parameters.{name}") for name, about in given.items()]
        else:
            for i, item in enumerate(given):
                name, about = (item, None) if isinstance(item, str) else (item.name, item)
                rows.append((name, about, f"parameters[{i}]"))
        found: dict[str, Parameter] = {}
        for name, about, place in rows:
            if not is_parameter_name(name):
                help = "a name consists of letters, digits, `_` and `-`"
                message = f"a parameter cannot be called `{name[:100]}`"
                self.error("bad-name", message, spec.spans[place], "", help)
            elif name in found:
                self.error("repeated-parameter", f"the parameter `{name}` is given twice", spec.spans[place])
            elif isinstance(about, ParameterSpec):
                found[name] = self.parameter(name, about)
            else:
                found[name] = Parameter(name, parse_type(about or "any") or "any")
        return tuple(found.values())

    def parameter(self, name: str, spec: ParameterSpec) -> Parameter:
        type = parse_type(spec.type) or "any"
        if spec.required and spec.is_given("default"):
            message = f"`{name}` is required, so its default is never used"
            self.error("contradictory-keys", message, spec.spans["default"])
        if spec.default is not None and not fits(spec.default, type):
            message = f"the default of `{name}` should be {TYPES[type]}"
            self.error("wrong-type", message, spec.spans["default"])
        is_required = not spec.is_given("default") if spec.required is None else spec.required
        return Parameter(name, type, is_required, spec.default, spec.description.strip())

    def definition(self, spec: ToolSpec, parameters: tuple[Parameter, ...]) -> dict[str, Any]:
        """The data that performs the tool: `argv`, `shell` or `python`."""
        if (spec.command is None) == (spec.python is None):
            if not spec.flawed:
                message = "a tool needs either `command` or `python`"
                label = "has both" if spec.python is not None else "has neither"
                help = "write `command: [program, argument]`"
                self.error("missing-field", message, spec.span, label, help)
            return {}
        if spec.python is not None:
            return {"python": spec.python}
        assert isinstance(spec.spans, NodeSpans)
        node = spec.spans.nodes["command"]
        if isinstance(node, Sequence):
            return {"argv": argv_pieces(self.document, node, parameters)}
        if not spec.command.strip():
            self.error("empty-command", "`command` is empty", spec.spans["command"])
            return {}
        return {"shell": shell_pieces(self.document, node, spec.command, parameters)}
