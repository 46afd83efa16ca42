"""What a project says in `.loops/config.yaml`; `spec/cli.md`, Configuration.

    secrets: [DEPLOY_PASSWORD]          environment variables whose values are never shown or written
    history: {keep: 100, older_than: 30d}
    models: [{name: local, provider: openai, base_url: "http://127.0.0.1:8000/v1", key: LOCAL_KEY}]
    tasks: {model: local, runner: model, max_tokens: 8192, timeout: 600}
    mcp: {files: {command: files-server, args: [.], env: {TOKEN: $FILES_TOKEN}}}
    agents: {codex: {argv: [codex, exec, "{prompt}"], output: text}}
    budget: {usd: 5, tokens: 1000000, calls: 50, seconds: 3600}

A project without the file has the defaults, and nothing is imported to find that out.
"""

from __future__ import annotations

import os
import re

from ..runs.runs import CONFIG, KEPT, LOOPS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ...frontend.source.document import Document, Mapping, Node
    from ...frontend.tasks.mcp import McpServer

_AGE = re.compile(r"(\d{1,6})\s*(m|h|d|w)")
_UNITS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


# Who does tasks, and who provides models; `models.choice` has a row for each of those.
RUNNERS = ("model", "agent")
PROVIDERS = ("anthropic", "openai")
BUDGET = ("usd", "tokens", "calls", "seconds")


class ModelEntry:
    """A model by a name of the project's own. provider, model: '' for what the name itself says.

    key: the variable that holds the key. price: USD per million tokens of input and of output.
    """

    __slots__ = ("base_url", "key", "model", "price", "provider")

    def __init__(self) -> None:
        self.provider = ""
        self.model = ""
        self.base_url: str | None = None
        self.key: str | None = None
        self.price: tuple[float, float] | None = None


class AgentEntry:
    """An agent program by a name of the project's own; `agent.Program` says what is done with it."""

    __slots__ = ("argv", "fields", "output", "resume")

    def __init__(self) -> None:
        self.argv: tuple[str, ...] = ()
        self.resume: tuple[str, ...] = ()
        self.output = "auto"
        self.fields: dict[str, str] = {}


class TaskSettings:
    """How tasks are done where they do not say so themselves. agent: a name of `agents`, or a program and
    its arguments.

    file_bytes, files_bytes: what of one file, and of all together, reaches a prompt.
    """

    __slots__ = ("agent", "file_bytes", "files_bytes", "max_tokens", "model", "runner", "timeout")

    def __init__(self) -> None:
        self.model = ""
        self.runner = "model"
        self.agent: str | tuple[str, ...] = ()
        self.max_tokens = 8192
        self.timeout = 600.0
        self.file_bytes = 256 << 10
        self.files_bytes = 1 << 20


class Configuration:
    """secrets: names of variables. keep: how many ended runs of a loop stay. older_than: in seconds; only
    runs that began longer ago are removed, None for any. models: by name. budget: what a run may use.
    """

    __slots__ = ("agents", "budget", "keep", "mcp", "models", "older_than", "secrets", "tasks")

    def __init__(
        self, secrets: tuple[str, ...] = (), keep: int = KEPT, older_than: int | None = None
    ) -> None:
        self.secrets = secrets
        self.keep = keep
        self.older_than = older_than
        self.agents: dict[str, AgentEntry] = {}
        self.mcp: dict[str, McpServer] = {}
        self.models: dict[str, ModelEntry] = {}
        self.tasks = TaskSettings()
        self.budget: dict[str, float] = {}


def load(root: str) -> Configuration:
    """The configuration of a project. Raises CompileError with everything that is wrong with it."""
    path = os.path.join(root, LOOPS, CONFIG)
    if not os.path.lexists(path):
        return Configuration()
    from ...frontend.source.files import read_source
    from ...frontend.source.yaml_tree import read_document

    return _Reader(read_document(read_source(path))).configuration()


def age(text: str) -> int | None:
    """Seconds in an age such as `30d`, `12h`, `90m` or `4w`; None for what is none."""
    match = _AGE.fullmatch(text.strip())
    return None if match is None else int(match[1]) * _UNITS[match[2]]


class _Reader:
    def __init__(self, document: Document) -> None:
        self.document = document
        self.named_agent: Node | None = None

    def configuration(self) -> Configuration:
        from ...frontend.source.document import Mapping, Scalar
        from ...ir.diagnostics import CompileError

        found = Configuration()
        root = self.document.root
        is_empty = isinstance(root, Scalar) and root.value is None
        if is_empty or [finding.id for finding in self.document.diagnostics] == ["empty-document"]:
            return found
        if isinstance(root, Mapping):
            for key, node in self.entries(root, tuple(_KEYS), "the configuration"):
                _KEYS[key](self, node, found)
        elif root is not None:
            self.error("wrong-type", "the configuration is a mapping", root)
        self.check_agent(found)
        if any(finding.is_error for finding in self.document.diagnostics):
            raise CompileError(self.document.diagnostics, [self.document.source])
        return found

    def error(self, id: str, message: str, node: Node, help: str | None = None) -> None:
        self.document.fail(id, message, self.document.span(node), help=help)

    def entries(self, mapping: Mapping, known: tuple[str, ...], what: str) -> list[tuple[str, Any]]:
        from ...ir.diagnostics import suggest

        for key, (name, _) in mapping.entries.items():
            if key not in known:
                help = suggest(key, known, "it may have")
                self.error("unknown-key", f"{what} has no key `{key}`", name, help)
        return [(key, node) for key, (_, node) in mapping.entries.items() if key in known]

    def secrets(self, node: Node, found: Configuration) -> None:
        from ...frontend.source.document import Sequence

        if not isinstance(node, Sequence):
            self.error("wrong-type", "`secrets` is a list of names of environment variables", node)
            return
        names = []
        for item in node.items:
            name = self.document.plain(item)
            if isinstance(name, str) and _VARIABLE.fullmatch(name):
                names.append(name)
            else:
                help = "the variable's name stands here, never its value"
                self.error("wrong-type", "not the name of an environment variable", item, help)
        found.secrets = (*found.secrets, *names)

    def history(self, node: Node, found: Configuration) -> None:
        from ...frontend.source.document import Mapping

        if not isinstance(node, Mapping):
            self.error("wrong-type", "`history` is a mapping of `keep` and `older_than`", node)
            return
        for key, item in self.entries(node, ("keep", "older_than"), "`history`"):
            value = self.document.plain(item)
            if key == "keep":
                if type(value) is int and value >= 0:
                    found.keep = value
                else:
                    self.error("wrong-type", "`keep` is a number of runs from 0", item)
            else:
                found.older_than = age(value) if isinstance(value, str) else None
                if found.older_than is None:
                    self.error("wrong-type", "`older_than` is an age such as `30d`, `12h` or `4w`", item)

    def servers(self, node: Node, found: Configuration) -> None:
        from ...frontend.tasks.mcp import read_servers

        found.mcp = read_servers(self.document, node)

    # --- agents ---------------------------------------------------------------------------------

    def agents(self, node: Node, found: Configuration) -> None:
        from ...frontend.source.document import Mapping

        if not isinstance(node, Mapping):
            help = "such as: codex: {argv: [codex, exec, '{prompt}'], output: text}"
            self.error("wrong-type", "`agents` is a mapping from names to programs", node, help)
            return
        for name, (key, item) in node.entries.items():
            if isinstance(item, Mapping):
                found.agents[name] = self.agent(name, key, item)
            else:
                self.error("wrong-type", f"the agent `{name}` is a mapping with `argv`", item)

    def agent(self, name: str, key: Node, node: Mapping) -> AgentEntry:
        from ..effects.agent import FIELDS, OUTPUTS

        entry = AgentEntry()
        for word, item in self.entries(node, AgentEntry.__slots__, f"the agent `{name}`"):
            value = self.document.plain(item)
            if word in ("argv", "resume"):
                if isinstance(value, list) and value and all(isinstance(one, str) and one for one in value):
                    setattr(entry, word, tuple(value))
                else:
                    self.error("wrong-type", f"`{word}` is a list: a program and its arguments", item)
                if word == "resume" and entry.resume and not any("{session}" in one for one in entry.resume):
                    self.error("missing-key", "`resume` has no `{session}`", item)
            elif word == "output":
                if value in OUTPUTS:
                    entry.output = value
                else:
                    self.choice(word, str(value), OUTPUTS, item)
            elif isinstance(value, dict) and all(isinstance(one, str) and one for one in value.values()):
                for field, path in value.items():
                    if field in FIELDS:
                        entry.fields[field] = path
                    else:
                        self.choice("fields", field, tuple(FIELDS), item)
            else:
                self.error("wrong-type", "`fields` is a mapping from names to paths", item)
        if entry.fields and entry.output != "json":
            help = "add `output: json`"
            self.error("contradictory-keys", f"`fields` of the agent `{name}` has no effect", key, help)
        if "argv" not in node.entries:
            self.error("missing-key", f"the agent `{name}` needs `argv`", key)
        return entry

    def check_agent(self, found: Configuration) -> None:
        """That the agent of tasks is there, where it is one by name."""
        from ..effects.agent import KNOWN

        name, node = found.tasks.agent, self.named_agent
        if node is not None and isinstance(name, str) and name not in (*KNOWN, *found.agents):
            from ...ir.diagnostics import suggest

            help = suggest(name, [*KNOWN, *found.agents], "there are")
            self.error("unknown-agent", f"no agent is called `{name[:80]}`", node, help)

    # --- models, tasks, budgets -----------------------------------------------------------------

    def models(self, node: Node, found: Configuration) -> None:
        from ...frontend.source.document import Mapping, Sequence

        if not isinstance(node, Sequence):
            self.error("wrong-type", "`models` is a list of models, each with a `name`", node)
            return
        for item in node.items:
            if not isinstance(item, Mapping) or "name" not in item.entries:
                self.error("wrong-type", "a model is a mapping with a `name`", item)
                continue
            self.model(item, found)

    def model(self, item: Mapping, found: Configuration) -> None:
        entry = ModelEntry()
        name = ""
        keys = ("name", "provider", "model", "base_url", "key", "price")
        for key, node in self.entries(item, keys, "a model"):
            value = self.document.plain(node)
            if key == "price":
                entry.price = self.price(value, node)
            elif not isinstance(value, str) or not value:
                self.error("wrong-type", f"`{key}` of a model is a text", node)
            elif key == "name":
                name = value
                if name in found.models:
                    self.error("repeated-key", f"the model `{name}` is given twice", node)
            elif key == "key":
                if _VARIABLE.fullmatch(value):
                    entry.key = value
                    found.secrets = (*found.secrets, value)
                else:
                    help = "the variable's name stands here, never its value"
                    self.error("wrong-type", "not the name of an environment variable", node, help)
            elif key == "provider" and value not in PROVIDERS:
                self.choice(key, value, PROVIDERS, node)
            else:
                setattr(entry, key, value)
        found.models[name] = entry

    def price(self, value: Any, node: Node) -> tuple[float, float] | None:
        if isinstance(value, list) and len(value) == 2 and all(map(_is_amount, value)):
            return float(value[0]), float(value[1])
        help = "USD per million tokens of input and of output: [1, 5]"
        self.error("wrong-type", "`price` is a list of two numbers", node, help)
        return None

    def tasks(self, node: Node, found: Configuration) -> None:
        from ...frontend.source.document import Mapping

        if not isinstance(node, Mapping):
            self.error("wrong-type", "`tasks` is a mapping", node)
            return
        tasks = found.tasks
        for key, item in self.entries(node, TaskSettings.__slots__, "`tasks`"):
            value = self.document.plain(item)
            if key == "agent":
                words = [value] if isinstance(value, str) else value
                if isinstance(words, list) and words and all(isinstance(word, str) for word in words):
                    tasks.agent = value if isinstance(value, str) else tuple(words)
                    self.named_agent = item
                else:
                    help = "a name of `agents`, or a list: a program and its arguments"
                    self.error("wrong-type", "`agent` is no agent", item, help)
            elif key == "timeout":
                if _is_amount(value) and value > 0:
                    tasks.timeout = float(value)
                else:
                    self.error("wrong-type", "`timeout` is a number of seconds above 0", item)
            elif key in ("model", "runner"):
                if not isinstance(value, str) or not value:
                    self.error("wrong-type", f"`{key}` is a text", item)
                elif key == "runner" and value not in RUNNERS:
                    self.choice(key, value, RUNNERS, item)
                else:
                    setattr(tasks, key, value)
            elif type(value) is int and value > 0:
                setattr(tasks, key, value)
            else:
                self.error("wrong-type", f"`{key}` is a whole number above 0", item)

    def budget(self, node: Node, found: Configuration) -> None:
        from ...frontend.source.document import Mapping

        if not isinstance(node, Mapping):
            self.error("wrong-type", f"`budget` is a mapping of {', '.join(BUDGET)}", node)
            return
        for key, item in self.entries(node, BUDGET, "`budget`"):
            value = self.document.plain(item)
            if _is_amount(value) and (key in ("usd", "seconds") or type(value) is int):
                found.budget[key] = value
            else:
                self.error("wrong-type", f"`{key}` of `budget` is a number from 0", item)

    def choice(self, key: str, value: str, choices: tuple[str, ...], node: Node) -> None:
        from ...ir.diagnostics import suggest

        help = suggest(value, choices, "it is one of")
        self.error("unknown-choice", f"`{key}` cannot be `{value[:80]}`", node, help)


_KEYS = {
    "secrets": _Reader.secrets,
    "history": _Reader.history,
    "agents": _Reader.agents,
    "mcp": _Reader.servers,
    "models": _Reader.models,
    "tasks": _Reader.tasks,
    "budget": _Reader.budget,
}


def _is_amount(value: Any) -> bool:
    """Whether a value is a finite number from 0."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e15
