"""MCP servers of a project (`mcp` in `.loops/config.yaml`) and the stored listings of their tools.

    mcp:
      files: {command: npx, args: [-y, some-server, .], env: {TOKEN: $FILES_TOKEN}, timeout: 60}

`llc mcp refresh` requests the tools of a server and stores the listing, so that a program can be checked
without starting a server. A tool is called `mcp:<server>.<tool>`. See `spec/mcp.md`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from posixpath import join
from typing import Any, ClassVar

from ...ir.diagnostics import CompileError, clean, suggest
from ...ir.python_internals import sha256
from ...ir.spans import Source
from ..source.document import Mapping as MappingNode
from ..source.files import is_file, path_exists, read_source
from ..source.schema import TEXT, Spec, Type, block, optional, required
from ..source.schema_reader import BAD, SchemaReader
from ..source.yaml_tree import read_document
from .names import is_name, is_parameter_name
from .signature import Parameter, Signature, parse_type

PREFIX = "mcp:"
CONFIG_FILE = "config.yaml"
LISTINGS = join(".cache", "mcp")
DEFAULT_TIMEOUT = 60.0
_MAX_DOC_CHARACTERS = 2_000


class McpServer(Spec):
    """An MCP server: the program to start."""

    keyed: ClassVar[bool] = True
    noun: ClassVar[str] = "the server"
    example: ClassVar[str] = "such as: files: {command: files-server}"

    name: str
    command: str = required(TEXT, "The program.")
    args: tuple[str, ...] = optional(Type("list", Type("text")), "Its arguments.", ())
    env: Mapping[str, str] = optional(
        Type("map", Type("text")),
        "Additional environment variables; `$NAME` is replaced by a variable of llc's environment.",
        factory=dict,
    )
    cwd: str | None = optional(TEXT, "Working directory of the server.")
    timeout: float = optional(Type("number", above=0, most=1e6), "Seconds for one request.", DEFAULT_TIMEOUT)

    @property
    def digest(self) -> str:
        """Digest of the command, to detect a listing of another command."""
        identity = json.dumps([self.command, self.args, self.cwd])
        return sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()


# Type of `mcp` in the configuration.
SERVERS = Type(
    "map",
    block(McpServer),
    pattern="[A-Za-z0-9][A-Za-z0-9_-]{0,63}",
    expected="a mapping from names (letters, digits, `_` and `-`) to servers",
    hint="such as: files: {command: files-server}",
)


# --- listings ---------------------------------------------------------------------------------


def listing_path(folder: str, server: str) -> str:
    """The path of a server's listing. folder: the project's `.loops`."""
    return join(folder, LISTINGS, f"{server}.json")


def listing_text(server: McpServer, tools: list[dict[str, Any]]) -> str:
    """The content of a listing file. tools: as returned by the server."""
    kept = ("name", "description", "inputSchema", "outputSchema")
    rows = [{key: tool[key] for key in kept if key in tool} for tool in tools]
    listing = {"server": server.name, "digest": server.digest, "tools": rows}
    return json.dumps(listing, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


class McpTools:
    """The MCP tools of a project, read on first use."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self._servers: dict[str, McpServer] | None = None
        self._broken = ""
        self._listings: dict[str, dict[str, Signature] | str] = {}

    @property
    def servers(self) -> dict[str, McpServer]:
        if self._servers is None:
            self._servers = {}
            path = join(self._folder, CONFIG_FILE) if self._folder is not None else ""
            if path and path_exists(path):
                try:
                    self._servers = _read_servers(path)
                except CompileError as error:
                    self._broken = error.diagnostics[0].message if error.diagnostics else "it is invalid"
        return self._servers

    def find(self, name: str) -> Signature | None:
        server, _, tool = name.removeprefix(PREFIX).partition(".")
        listing = self._listing(server)
        return listing.get(tool) if isinstance(listing, dict) else None

    def signatures(self) -> list[Signature]:
        """The signatures of all listed tools."""
        listings = [self._listing(server) for server in self.servers]
        return [tool for listing in listings if isinstance(listing, dict) for tool in listing.values()]

    def is_listed(self, server: str) -> bool:
        """Whether a listing of a server's tools exists."""
        return server in self.servers and isinstance(self._listing(server), dict)

    def explain_missing(self, name: str) -> tuple[str, str | None]:
        """The message and help for a name without a tool."""
        server, _, tool = name.removeprefix(PREFIX).partition(".")
        servers = self.servers
        if self._broken:
            return f"`{name}` cannot be resolved: .loops/config.yaml is invalid", self._broken
        if server not in servers:
            help = suggest(server, servers, "servers are") or "servers are under `mcp` in .loops/config.yaml"
            return f"no MCP server is called `{server}`", help
        listing = self._listing(server)
        if isinstance(listing, str):
            return (
                f"the tools of the MCP server `{server}` are unknown{listing}",
                f"run: llc mcp refresh {server}",
            )
        help = suggest(tool, listing, "its tools are") or "it has no tools"
        again = f"if the tool is new: llc mcp refresh {server}"
        return f"the MCP server `{server}` has no tool `{tool}`", f"{help}; {again}"

    def _listing(self, server: str) -> dict[str, Signature] | str:
        """The tools of a server, or the reason why they are unknown, as the end of a sentence."""
        if server not in self._listings:
            self._listings[server] = self._read(server)
        return self._listings[server]

    def _read(self, server: str) -> dict[str, Signature] | str:
        if server not in self.servers or self._folder is None:
            return ""
        path = listing_path(self._folder, server)
        if not is_file(path):
            return ""
        try:
            source = read_source(path)
            listing = json.loads(source.text or "")
            if listing["digest"] != self.servers[server].digest:
                return ": its command has changed since the last refresh"
            return listed_tools(server, listing["tools"], source)
        except (CompileError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return f": {path} cannot be read"


def _read_servers(path: str) -> dict[str, McpServer]:
    document = read_document(read_source(path))
    root = document.root
    found: Any = {}
    if isinstance(root, MappingNode) and "mcp" in root.entries:
        found = SchemaReader(document).value(SERVERS, root.entries["mcp"][1], "mcp", {})
    if any(finding.is_error for finding in document.diagnostics):
        raise CompileError(document.diagnostics, [document.source])
    return {} if found is BAD else dict(found)


def listed_tools(
    server: str, tools: list[dict[str, Any]], source: Source | None = None
) -> dict[str, Signature]:
    """The tools of a listing by name, without names that the language cannot express."""
    found = [tool for tool in tools if isinstance(tool.get("name"), str) and is_name(tool["name"])]
    return {tool["name"]: signature(server, tool, source) for tool in found}


def signature(server: str, tool: dict[str, Any], source: Source | None) -> Signature:
    """The signature of a listed tool, from its JSON Schema; the server checks the rest of the schema."""
    schema = tool.get("inputSchema")
    output = tool.get("outputSchema")
    declared = output.get("properties") if isinstance(output, dict) else None
    definition = {"mcp": {"server": server, "tool": tool["name"]}}
    if isinstance(declared, dict) and list(declared) == ["result"]:
        definition["mcp"]["is_wrapped"] = True
    doc = _line(tool.get("description"))
    return Signature(
        f"{PREFIX}{server}.{tool['name']}",
        "tool",
        _parameters(schema),
        "tool",
        definition,
        doc,
        source=source,
    )


def _line(text: Any) -> str:
    """A server's description as one printable line."""
    return clean(" ".join(str(text or "").split()), _MAX_DOC_CHARACTERS)


def _parameters(schema: Any) -> tuple[Parameter, ...] | None:
    """The parameters, required ones first; None if any name is allowed."""
    if not isinstance(schema, dict):
        return None
    properties = schema.get("properties") or {}
    if not isinstance(properties, dict) or not all(is_parameter_name(name) for name in properties):
        return None
    if (
        not properties
        and schema.get("additionalProperties", True) not in (False, None)
        and "type" not in schema
    ):
        return None
    needed = schema.get("required") or []
    found = [
        _parameter(name, about if isinstance(about, dict) else {}, name in needed)
        for name, about in properties.items()
    ]
    return tuple(sorted(found, key=lambda parameter: not parameter.is_required))


def _parameter(name: str, schema: dict[str, Any], is_required: bool) -> Parameter:
    kind = schema.get("type")
    choices = schema.get("enum")
    has_texts = isinstance(choices, list) and choices and all(isinstance(choice, str) for choice in choices)
    return Parameter(
        name,
        (parse_type(kind) if isinstance(kind, str) else None) or "any",
        is_required,
        None,  # the server applies its defaults
        _line(schema.get("description")),
        choices=tuple(choices) if has_texts and choices else (),
    )
