"""Registry of agents: their definitions, their capabilities, and the command that starts an agent.

`stdlib/agents/` has one file per agent that llc knows; `agent_schema` declares the keys of such a file. A
project adds its own agents under `agents` in `.loops/config.yaml`. Imported when an agent starts or a loop is
checked, never at the start of a run. Must not contain: the name of any agent except the default agent.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from ... import stdlib
from ...frontend.source.document import Document
from ...frontend.source.document import Mapping as MappingNode
from ...frontend.source.files import read_source
from ...frontend.source.schema import fields_of
from ...frontend.source.schema_reader import SchemaReader
from ...frontend.source.yaml_tree import read_document
from ...ir.diagnostics import CompileError, suggest
from ..host import files
from .agent_schema import AgentSpec, PermissionMode

DEFAULT = "claude"
_STDLIB = os.path.dirname(stdlib.__file__)
_FOLDER = os.path.join(_STDLIB, "agents")
_PLACEHOLDER = re.compile(
    r"\{(prompt|session|new_session|options|permissions|model|effort|allowed_tools|append_prompt"
    r"|schema|schema_file|cap_usd|cap_turns)\}"
)
# Placeholders that expand to several words.
_SPLICED = ("options", "permissions")
# Capabilities that a loop can require of an agent, with the placeholders that each provide it.
CAPABILITIES = {
    **{name: (name,) for name in ("model", "effort", "allowed_tools", "append_prompt", "session")},
    "session_id": ("new_session",),
    "schema": ("schema", "schema_file"),
    "cap_usd": ("cap_usd",),
    "max_turns": ("cap_turns",),
}


class UnknownAgent(Exception):
    """No agent has this name; `help` suggests another name."""

    def __init__(self, name: str, help: str | None) -> None:
        self.name = name
        self.help = help
        super().__init__(f"no agent is called `{name[:80]}`")


def known_names() -> list[str]:
    """The names of the agents in `stdlib/agents/`."""
    return sorted(name[:-5] for name in files.listdir(_FOLDER) if name.endswith(".yaml"))


@cache
def known(name: str) -> AgentSpec:
    """The agent with this name in `stdlib/agents/`. Raises `UnknownAgent`."""
    if name not in known_names():
        raise UnknownAgent(name, suggest(name, known_names(), "there are"))
    return _read(os.path.join(_FOLDER, f"{name}.yaml"), name)


@cache
def _protocol(name: str) -> AgentSpec:
    """The keys that a protocol adds to its agents."""
    return _read(os.path.join(_STDLIB, "protocols", f"{name}.yaml"), name, is_protocol=True)


def _read(path: str, name: str, is_protocol: bool = False) -> AgentSpec:
    """Read the file of an agent or a protocol in the standard library."""
    document = read_document(read_source(path))
    agent = read_agent(document, name, is_protocol)
    if agent is None or any(diagnostic.is_error for diagnostic in document.diagnostics):
        raise CompileError(document.diagnostics, [document.source])
    return agent


def read_agent(document: Document, name: str, is_protocol: bool = False) -> AgentSpec | None:
    """Read the agent in a document; None if it is invalid, with the reasons in `document.diagnostics`."""
    reader = AgentReader(document)
    reader.is_built_in = True
    reader.is_protocol = is_protocol
    root = document.root
    if not isinstance(root, MappingNode):
        reader.error("wrong-type", "an agent should be a mapping", document.span(root) if root else None)
        return None
    agent = reader.block(AgentSpec, root, document.span(root), "the agent", name=name)
    return reader.checked(agent) if isinstance(agent, AgentSpec) and not agent.flawed else None


class AgentReader(SchemaReader):
    """Reader of agents: resolves inheritance and checks rules that involve several keys."""

    # Whether the file is in `stdlib/agents`: its program must not inherit from the known agent of its name.
    is_built_in = False
    # Whether the file is in `stdlib/protocols`, which names no program.
    is_protocol = False

    def checked(self, agent: AgentSpec) -> AgentSpec:
        """Return the agent with its inherited keys; report its errors."""
        if agent.protocol is not None and not self.is_protocol:
            if agent.extends is not None or not agent.argv:
                message = "an agent with `protocol` needs `argv` of its own, and no `extends`"
                has_both = agent.extends is not None
                self.error(
                    "contradictory-keys" if has_both else "missing-field", message, agent.span_of("protocol")
                )
                return agent
            base = _protocol(agent.protocol)
            agent = _inherit(agent, base).evolve(errors=(*agent.errors, *base.errors))
        if agent.extends is not None:
            try:
                agent = _inherit(agent, known(agent.extends))
            except UnknownAgent as error:
                self.error("unknown-agent", str(error), agent.spans["extends"], "", error.help)
                return agent
        elif not agent.argv:
            return agent  # reported, or a protocol
        elif not isinstance(agent.argv[0], str):
            self.error("wrong-type", "`argv` should begin with a program", agent.span_of("argv"))
            return agent
        elif not self.is_built_in and agent.protocol is None:
            agent = _inherit(agent, of_words(agent.argv, agent.name))
        if agent.resume and not is_placed(agent.resume, "session"):
            self.error("missing-placeholder", "`resume` has no `{session}`", agent.span_of("resume"))
        if agent.fields and agent.output != "json":
            message = f"`fields` of the agent `{agent.name}` has no effect"
            self.error("contradictory-keys", message, agent.span_of("fields"), "", "add `output: json`")
        if agent.output == "events" and not agent.events:
            self.error("missing-field", "`output: events` needs `events`", agent.span_of("output"))
        self.check_patterns(agent)
        return agent

    def check_patterns(self, agent: AgentSpec) -> None:
        """Report each regular expression that cannot be compiled."""
        texts = [(error.text, error.span_of("text")) for error in agent.errors if error.text]
        texts += [(text, rule.span_of("like")) for rule in agent.events for text in rule.like.values()]
        for text, span in texts:
            try:
                re.compile(text)
            except (re.error, RecursionError, OverflowError) as error:
                message = f"`{text[:80]}` is not a regular expression: {error}"
                self.error("invalid-regex", message, span)


def _inherit(agent: AgentSpec, base: AgentSpec) -> AgentSpec:
    """The agent with the keys of `base` that it does not set itself."""
    missing = {key: getattr(base, key) for key in fields_of(AgentSpec) if not agent.is_given(key)}
    if agent.is_given("argv") and agent.extends is not None:
        # An agent with its own `argv` continues a session by its own `resume` or by the options.
        missing |= {key: () for key in ("resume", "fork") if key in missing}
        if "prompt" in missing and is_placed(agent.argv, "prompt"):
            missing["prompt"] = base.prompt.evolve(by="argument")
    merged = agent.evolve(**missing)
    if merged.options and merged.argv and not is_placed(merged.argv, "options"):
        merged = merged.evolve(argv=(merged.argv[0], "{options}", *merged.argv[1:]))
    return merged


def of_protocol(protocol: str, words: tuple[str, ...]) -> AgentSpec:
    """The agent for a command line whose program speaks `protocol`, one of `PROTOCOLS`."""
    return _protocol(protocol).evolve(name=os.path.basename(words[0]), argv=words)


def of_words(words: tuple[Any, ...], name: str = "") -> AgentSpec:
    """The agent for a command line; a known program inherits the keys of its agent."""
    program = os.path.basename(words[0])
    if program in known_names():
        base = known(program)
        if len(words) == 1:
            # Only the path of a known program: use that agent's command with this path.
            argv, resume, fork = (
                (words[0], *command[1:]) if command else () for command in (base.argv, base.resume, base.fork)
            )
            return base.evolve(name=name or program, argv=argv, resume=resume, fork=fork)
        return base.evolve(
            name=name or program,
            argv=words if is_placed(words, "options") else (words[0], "{options}", *words[1:]),
            resume=(),
            fork=(),
            # The command line itself determines the format and the permissions.
            output="auto",
            default_permissions=None,
            prompt=base.prompt.evolve(by="argument") if is_placed(words, "prompt") else base.prompt,
        )
    return AgentSpec(name=name or program, argv=words)


# --- capabilities -----------------------------------------------------------------------------


def is_placed(words: Iterable[Any], placeholder: str) -> bool:
    """Whether a placeholder occurs in the words of a command."""
    return any(
        f"{{{placeholder}}}" in word if isinstance(word, str) else is_placed(word, placeholder)
        for word in words
    )


def capabilities_of(agent: AgentSpec) -> frozenset[str]:
    """The capabilities of an agent: keys of `CAPABILITIES`, `session: fork`, `permissions: MODE`."""
    words = (*agent.argv, *(agent.options if is_placed(agent.argv, "options") else ()), *agent.resume)
    capabilities = {
        name
        for name, placeholders in CAPABILITIES.items()
        if any(is_placed(words, placeholder) for placeholder in placeholders)
    }
    if agent.fork:
        capabilities.add("session: fork")
    if agent.protocol is not None:
        capabilities.add("session")
    return frozenset(capabilities | {f"permissions: {mode}" for mode in agent.permissions})


def states_cost(agent: AgentSpec) -> bool:
    """Whether the agent's output can state its cost; True for an agent with an unknown output format."""
    return agent.output not in ("events", "text") or any(rule.cost is not None for rule in agent.events)


def agents_with(capabilities: Iterable[str]) -> str:
    """The known agents with all of these capabilities, as a list for a message."""
    needed = set(capabilities)
    return ", ".join(f"`{name}`" for name in known_names() if needed <= capabilities_of(known(name)))


def required_of(args: Mapping[str, Any]) -> list[str]:
    """The capabilities that the arguments of an `agent` effect require."""
    options = ("model", "effort", "allowed_tools", "append_prompt", "max_turns")
    required = [name for name in options if args.get(name)]
    if args.get("permissions"):
        required.append(f"permissions: {args['permissions']}")
    if args.get("session"):
        required.append("session: fork" if args.get("fork") else "session")
    return required


# --- the command ------------------------------------------------------------------------------


class Command:
    """The command that starts an agent for one effect.

    argv: the program and its arguments. env: environment variables. permissions: the permission mode; None
    for the agent's default. session_mode: the session mode of the Agent Client Protocol; None for the agent's
    default. note: a note for the user, or "".
    """

    def __init__(
        self, agent: AgentSpec, args: Mapping[str, Any], is_root: bool, env: Mapping[str, str]
    ) -> None:
        """args: arguments of the effect, plus `new_session`, the id for a new session, and `cap_usd`, the
        maximum cost.
        """
        self.note = ""
        requested = args.get("permissions")
        words = list(agent.argv)
        session = args.get("session")
        if session and (args.get("fork") or agent.resume):
            words = list(agent.fork if args.get("fork") else agent.resume)
        name = requested or agent.default_permissions
        mode = agent.permissions.get(name) if name else None
        if mode is None and not requested:
            name, mode = _mode_in_command(agent, words)
        tools = args.get("allowed_tools")
        as_root = mode.as_root if mode is not None and is_root else None
        if as_root is not None and (as_root.unless is None or env.get(as_root.unless) != "1"):
            self.note = (
                f"[llc: {agent.argv[0]} refuses `permissions: {name}` as root; "
                f"it gets `{' '.join(as_root.argv)}` and allowed tools]\n"
            )
            requested, mode, tools = name, PermissionMode(argv=as_root.argv), tools or as_root.allowed_tools
        self.permissions = name
        self.session_mode = mode.session_mode if mode is not None else None
        self.env = {**agent.env, **(mode.env if mode is not None else {})}
        if requested:
            words = [word for word in words if word not in _mode_words(agent)]
        values: dict[str, Any] = {
            "prompt": args["command"],
            "session": session,
            "new_session": None if session else args.get("new_session"),
            "model": args.get("model"),
            "effort": args.get("effort"),
            "allowed_tools": ",".join(tools) if tools else None,
            "append_prompt": args.get("append_prompt"),
            "schema": args.get("schema"),
            "schema_file": args.get("schema_file"),
            "cap_usd": None if args.get("cap_usd") is None else f"{args['cap_usd']:.6f}",
            "cap_turns": None if args.get("max_turns") is None else str(args["max_turns"]),
            "permissions": list(mode.argv)
            if mode is not None and (requested or agent.default_permissions)
            else [],
        }
        values["options"] = _expand(agent.options, values)
        if agent.prompt.by == "argument" and not is_placed(words, "prompt"):
            words.append("{prompt}")
        self.argv = _expand(words, values)


def _mode_in_command(agent: AgentSpec, words: list[Any]) -> tuple[str | None, PermissionMode | None]:
    """The permission mode that the words of a command already request."""
    for name, mode in agent.permissions.items():
        if mode.argv and all(word in words for word in mode.argv):
            return name, mode
    return None, None


def _mode_words(agent: AgentSpec) -> set[str]:
    """Single words that request a permission mode."""
    return {mode.argv[0] for mode in agent.permissions.values() if len(mode.argv) == 1}


def _expand(words: Iterable[Any], values: Mapping[str, Any]) -> list[str]:
    """Replace the placeholders in words; omit a nested list if one of its placeholders has no value."""
    expanded: list[str] = []
    for word in words:
        if not isinstance(word, str):
            if all(values.get(name) is not None for part in word for name in _PLACEHOLDER.findall(part)):
                expanded += _expand(word, values)
        elif word[1:-1] in _SPLICED and word == f"{{{word[1:-1]}}}":
            expanded += values.get(word[1:-1]) or ()
        else:
            # In one pass, because a prompt may contain `{session}`.
            expanded.append(_PLACEHOLDER.sub(lambda match: _text(values.get(match[1]), match[0]), word))
    return expanded


def _text(value: Any, default: str) -> str:
    return default if value is None else str(value)
