"""Agents of a project: which there are, what each can do, and the command that starts one.

`stdlib/agents/` has one file per agent that llc knows, `agent_schema` declares what such a file contains;
a project adds its own under `agents` in `.loops/config.yaml`. Imported where an agent starts or a loop
is checked, never at the start of a run. Must not contain: the name of any agent but the default one.
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
_PLACES = re.compile(
    r"\{(prompt|session|new_session|options|permissions|model|effort|allowed_tools|append_prompt"
    r"|schema|schema_file|cap_usd|cap_turns)\}"
)
# Placeholders that stand for several words.
_SPLICED = ("options", "permissions")
# What a loop can require of an agent, and the placeholders any of which provides it.
CAPABILITIES = {
    **{name: (name,) for name in ("model", "effort", "allowed_tools", "append_prompt", "session")},
    "session_id": ("new_session",),
    "schema": ("schema", "schema_file"),
    "cap_usd": ("cap_usd",),
    "max_turns": ("cap_turns",),
}


class UnknownAgent(Exception):
    """There is no agent of that name; `help` suggests another."""

    def __init__(self, name: str, help: str | None) -> None:
        self.name = name
        self.help = help
        super().__init__(f"no agent is called `{name[:80]}`")


def known_names() -> list[str]:
    """The agents that need no configuration."""
    return sorted(name[:-5] for name in files.listdir(_FOLDER) if name.endswith(".yaml"))


@cache
def known(name: str) -> AgentSpec:
    """An agent that needs no configuration. Raises `UnknownAgent`."""
    if name not in known_names():
        raise UnknownAgent(name, suggest(name, known_names(), "there are"))
    return _read(os.path.join(_FOLDER, f"{name}.yaml"), name)


@cache
def _protocol(name: str) -> AgentSpec:
    """What every agent of a protocol has."""
    return _read(os.path.join(_STDLIB, "protocols", f"{name}.yaml"), name, is_protocol=True)


def _read(path: str, name: str, is_protocol: bool = False) -> AgentSpec:
    """An agent of the standard library, or what a protocol gives to its agents."""
    document = read_document(read_source(path))
    found = read_agent(document, name, is_protocol)
    if found is None or any(finding.is_error for finding in document.diagnostics):
        raise CompileError(document.diagnostics, [document.source])
    return found


def read_agent(document: Document, name: str, is_protocol: bool = False) -> AgentSpec | None:
    """The agent in a file of its own; None where it is none, which `document.diagnostics` explains."""
    reader = AgentReader(document)
    reader.is_built_in = True
    reader.is_protocol = is_protocol
    root = document.root
    if not isinstance(root, MappingNode):
        reader.error("wrong-type", "an agent should be a mapping", document.span(root) if root else None)
        return None
    found = reader.block(AgentSpec, root, document.span(root), "the agent", name=name)
    return reader.checked(found) if isinstance(found, AgentSpec) and not found.flawed else None


class AgentReader(SchemaReader):
    """Reads agents: inheritance, and the checks across keys."""

    # Whether it reads a file of `stdlib/agents`, whose program is known by nothing else.
    is_built_in = False
    # Whether it reads a file of `stdlib/protocols`, which names no program.
    is_protocol = False

    def checked(self, agent: AgentSpec) -> AgentSpec:
        """The agent with what it inherits; problems are reported."""
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
        """Every regular expression can be compiled."""
        texts = [(error.text, error.span_of("text")) for error in agent.errors if error.text]
        texts += [(text, rule.span_of("like")) for rule in agent.events for text in rule.like.values()]
        for text, span in texts:
            try:
                re.compile(text)
            except (re.error, RecursionError, OverflowError) as error:
                message = f"`{text[:80]}` is not a regular expression: {error}"
                self.error("invalid-regex", message, span)


def _inherit(agent: AgentSpec, base: AgentSpec) -> AgentSpec:
    """The agent with the keys of `base` where it has none of its own."""
    missing = {key: getattr(base, key) for key in fields_of(AgentSpec) if not agent.is_given(key)}
    if agent.is_given("argv") and agent.extends is not None:
        # Its own words continue a session by its own `resume`, else by the options.
        missing |= {key: () for key in ("resume", "fork") if key in missing}
        if "prompt" in missing and is_placed(agent.argv, "prompt"):
            missing["prompt"] = base.prompt.evolve(by="argument")
    found = agent.evolve(**missing)
    if found.options and found.argv and not is_placed(found.argv, "options"):
        found = found.evolve(argv=(found.argv[0], "{options}", *found.argv[1:]))
    return found


def of_protocol(protocol: str, words: tuple[str, ...]) -> AgentSpec:
    """The agent that a command line starts which speaks a protocol, one of `PROTOCOLS`."""
    return _protocol(protocol).evolve(name=os.path.basename(words[0]), argv=words)


def of_words(words: tuple[Any, ...], name: str = "") -> AgentSpec:
    """The agent that a command line starts: with what is known about the program, if it is known."""
    program = os.path.basename(words[0])
    if program in known_names():
        base = known(program)
        if len(words) == 1:
            # A path of a known program: the command of that agent.
            argv, resume, fork = (
                (words[0], *command[1:]) if command else () for command in (base.argv, base.resume, base.fork)
            )
            return base.evolve(name=name or program, argv=argv, resume=resume, fork=fork)
        return base.evolve(
            name=name or program,
            argv=words if is_placed(words, "options") else (words[0], "{options}", *words[1:]),
            resume=(),
            fork=(),
            # Its own words decide the format and the permissions.
            output="auto",
            default_permissions=None,
            prompt=base.prompt.evolve(by="argument") if is_placed(words, "prompt") else base.prompt,
        )
    return AgentSpec(name=name or program, argv=words)


# --- what it can do ---------------------------------------------------------------------------


def is_placed(words: Iterable[Any], place: str) -> bool:
    """Whether a placeholder is in words of a command."""
    return any(
        is_placed(word, place) if not isinstance(word, str) else f"{{{place}}}" in word for word in words
    )


def capabilities_of(agent: AgentSpec) -> frozenset[str]:
    """What a loop can require of it: keys of `CAPABILITIES`, `session: fork`, `permissions: MODE`."""
    words = (*agent.argv, *(agent.options if is_placed(agent.argv, "options") else ()), *agent.resume)
    found = {
        name for name, places in CAPABILITIES.items() if any(is_placed(words, place) for place in places)
    }
    if agent.fork:
        found.add("session: fork")
    if agent.protocol is not None:
        found.add("session")
    return frozenset(found | {f"permissions: {mode}" for mode in agent.permissions})


def states_cost(agent: AgentSpec) -> bool:
    """Whether it can state what it costs; one of which nothing is known can."""
    return agent.output not in ("events", "text") or any(rule.cost is not None for rule in agent.events)


def agents_with(capabilities: Iterable[str]) -> str:
    """The known agents that have all of these capabilities, as words of a message."""
    needed = set(capabilities)
    found = [f"`{name}`" for name in known_names() if needed <= capabilities_of(known(name))]
    return ", ".join(found)


def required_of(args: Mapping[str, Any]) -> list[str]:
    """The capabilities that the arguments of an `agent` effect require."""
    named = ("model", "effort", "allowed_tools", "append_prompt", "max_turns")
    required = [name for name in named if args.get(name)]
    if args.get("permissions"):
        required.append(f"permissions: {args['permissions']}")
    if args.get("session"):
        required.append("session: fork" if args.get("fork") else "session")
    return required


# --- the command ------------------------------------------------------------------------------


class Command:
    """The command that starts an agent for one effect.

    argv: the program and its arguments. env: variables. permissions: the mode that it gets, None: its own.
    session_mode: that of its session by the Agent Client Protocol, None: its own.
    note: what the user should know about it, or "".
    """

    def __init__(
        self, agent: AgentSpec, args: Mapping[str, Any], is_root: bool, env: Mapping[str, str]
    ) -> None:
        """args: those of the effect, and `new_session`, the id of a session that is to be created.

        `cap_usd` of them is the most that the agent may spend.
        """
        self.note = ""
        wanted = args.get("permissions")
        words = list(agent.argv)
        session = args.get("session")
        if session and (args.get("fork") or agent.resume):
            words = list(agent.fork if args.get("fork") else agent.resume)
        name = wanted or agent.default_permissions
        mode = agent.permissions.get(name) if name else None
        if mode is None and not wanted:
            name, mode = _own_mode(agent, words)
        tools = args.get("allowed_tools")
        instead = mode.as_root if mode is not None and is_root else None
        if instead is not None and (instead.unless is None or env.get(instead.unless) != "1"):
            self.note = (
                f"[llc: {agent.argv[0]} refuses `permissions: {name}` as root; "
                f"it gets `{' '.join(instead.argv)}` and allowed tools]\n"
            )
            wanted, mode, tools = name, PermissionMode(argv=instead.argv), tools or instead.allowed_tools
        self.permissions = name
        self.session_mode = mode.session_mode if mode is not None else None
        self.env = {**agent.env, **(mode.env if mode is not None else {})}
        if wanted:
            words = [word for word in words if word not in _mode_words(agent)]
        given: dict[str, Any] = {
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
            if mode is not None and (wanted or agent.default_permissions)
            else [],
        }
        given["options"] = _expanded(agent.options, given)
        if agent.prompt.by == "argument" and not is_placed(words, "prompt"):
            words.append("{prompt}")
        self.argv = _expanded(words, given)


def _own_mode(agent: AgentSpec, words: list[Any]) -> tuple[str | None, PermissionMode | None]:
    """The permission mode that the words of a command request themselves."""
    for name, mode in agent.permissions.items():
        if mode.argv and all(word in words for word in mode.argv):
            return name, mode
    return None, None


def _mode_words(agent: AgentSpec) -> set[str]:
    """Words that request a permission mode by themselves."""
    return {mode.argv[0] for mode in agent.permissions.values() if len(mode.argv) == 1}


def _expanded(words: Iterable[Any], given: Mapping[str, Any]) -> list[str]:
    """Words with their placeholders replaced; a list of words is left out where one has no value."""
    found: list[str] = []
    for word in words:
        if not isinstance(word, str):
            if all(given.get(place) is not None for part in word for place in _PLACES.findall(part)):
                found += _expanded(word, given)
        elif word[1:-1] in _SPLICED and word == f"{{{word[1:-1]}}}":
            found += given.get(word[1:-1]) or ()
        else:
            # In one pass: a prompt may contain `{session}`.
            found.append(_PLACES.sub(lambda place: _text(given.get(place[1]), place[0]), word))
    return found


def _text(value: Any, absent: str) -> str:
    return absent if value is None else str(value)
