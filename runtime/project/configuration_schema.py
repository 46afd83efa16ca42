"""Schema of `.loops/config.yaml`; `spec/cli.md`, Configuration.

Imported only for a project that has the file, because the schema engine needs attrs and PyYAML.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ...frontend.source.document import Scalar
from ...frontend.source.files import read_source
from ...frontend.source.schema import (
    COUNT,
    DURATION,
    NAME,
    TEXT,
    VARIABLE,
    Field,
    Spec,
    Type,
    block,
    choice,
    fields_of,
    optional,
    required,
)
from ...frontend.source.schema_reader import BAD
from ...frontend.source.yaml_tree import read_document
from ...frontend.tasks.mcp_servers import SERVERS, McpServer
from ...ir.diagnostics import CompileError, suggest
from ...ir.effects import RECORD_FILES, RUNNERS, UNITS
from ...ir.python_internals import import_module
from ..host.paths import KEPT
from .agent_schema import AgentSpec
from .agents import AgentReader, known_names
from .providers import PROVIDERS
from .settings import AGE, SIZE, Configuration, ModelEntry, TaskSettings, age, size

_AMOUNT = Type("number", least=0, most=1e15)
_WHOLE = Type("integer", least=0, most=1e15)
_WORDS = Type("list", TEXT, least=1, says="a list: a program and its arguments")
_RUNS = Type("integer", least=0, most=1e12)
_BYTES = Type("integer", least=1, most=1e12)
_TASKS = TaskSettings()


class Keep(Spec):
    """How much of the finished runs is kept."""

    runs: int = optional(_RUNS, "Finished runs kept per loop.", KEPT)
    size: str | None = optional(
        Type("text", pattern=SIZE, says="a size such as `2GB` or `500MB`"),
        "Bytes of all finished runs; the oldest go first, but not a loop's last.",
    )


class History(Spec):
    """Which finished runs are kept."""

    keep: int | Keep = optional(
        Type("either", options=(_RUNS, block(Keep)), says="a number of runs, or `runs` and `size`"),
        "Finished runs kept per loop, or with `size` also the bytes of all.",
        KEPT,
    )
    older_than: str | None = optional(
        Type("text", pattern=AGE, says="an age such as `30d`, `12h` or `4w`"),
        "Remove only runs that started longer ago than this.",
    )


class ModelSpec(Spec):
    """A model, by a name of the project's own."""

    noun: ClassVar[str] = "a model"

    name: str = required(NAME, "The name that loops and tasks use.")
    provider: str = optional(choice(*PROVIDERS), "Whose interface it has; absent: by its name.", "")
    model: str = optional(TEXT, "The provider's name of it; absent: `name`.", "")
    base_url: str | None = optional(TEXT, "The address of the server.")
    key: str | None = optional(VARIABLE, "The environment variable that contains the API key.")
    price: tuple[float, float] | None = optional(
        Type(
            "list",
            _AMOUNT,
            least=2,
            most=2,
            says="a list of two numbers",
            hint="USD per million tokens of input and of output: [1, 5]",
        ),
        "USD per million tokens of input and of output.",
    )


class TaskSpec(Spec):
    """How tasks are performed that do not say so themselves."""

    model: str = optional(TEXT, "The model; absent: the built-in default.", "")
    runner: str = optional(choice(*RUNNERS), "What performs tasks.", _TASKS.runner)
    agent: str | tuple[str, ...] = optional(
        Type(
            "either",
            options=(TEXT, _WORDS),
            says="a name of `agents`, or a list: a program and its arguments",
        ),
        "The agent that performs tasks: a name of `agents`, or a program and its arguments.",
        (),
    )
    max_tokens: int = optional(COUNT, "Tokens of an answer at most.", _TASKS.max_tokens)
    timeout: float = optional(DURATION, "Seconds for one task.", _TASKS.timeout)
    file_bytes: int = optional(_BYTES, "Bytes of one file that a prompt contains at most.", _TASKS.file_bytes)
    files_bytes: int = optional(
        _BYTES, "Bytes of all files that a prompt contains at most.", _TASKS.files_bytes
    )


class Amounts(Spec):
    """What agent and model calls may use."""

    usd: float | None = optional(_AMOUNT, "US dollars at most.")
    tokens: int | None = optional(_WHOLE, "Tokens at most, in and out.")
    calls: int | None = optional(_WHOLE, "Calls at most.")
    seconds: float | None = optional(_AMOUNT, "Seconds of calls at most.")

    @property
    def limits(self) -> dict[str, float]:
        """The amounts that are given, by unit."""
        bounds = {unit: getattr(self, unit) for unit in UNITS}
        return {unit: bound for unit, bound in bounds.items() if bound is not None}


class RunBudget(Amounts):
    """What agent and model calls of a run may use, and those of all runs of the project."""

    day: Amounts = optional(block(Amounts), "What all runs may use in a day.", factory=Amounts)
    month: Amounts = optional(block(Amounts), "What all runs may use in a month.", factory=Amounts)
    project: Amounts = optional(block(Amounts), "What all runs may ever use.", factory=Amounts)


class WorkspaceSpec(Spec):
    """The files that runs of a cluster work on: each run has a checkout of its own."""

    noun: ClassVar[str] = "a workspace"

    repo: str = optional(TEXT, "Address or path of the git repository; absent: the remote `origin`.", "")
    ref: str = optional(
        TEXT, "Branch, tag or commit; absent: the files as they are when the run is submitted.", ""
    )


class ConfigurationFile(Spec):
    """The configuration of a project."""

    noun: ClassVar[str] = "the configuration"

    secrets: tuple[str, ...] = optional(
        Type("list", VARIABLE), "Environment variables whose values are never shown or written.", ()
    )
    history: History = optional(block(History), "Which finished runs are kept.", factory=History)
    models: tuple[ModelSpec, ...] = optional(
        Type("list", block(ModelSpec)), "Models by names of the project's own.", ()
    )
    tasks: TaskSpec = optional(block(TaskSpec), "How tasks are performed.", factory=TaskSpec)
    mcp: Mapping[str, McpServer] = optional(SERVERS, "MCP servers by name.", factory=dict)
    agents: Mapping[str, AgentSpec] = optional(
        Type("map", block(AgentSpec)), "Agent programs by name.", factory=dict
    )
    budget: RunBudget = optional(
        block(RunBudget), "What agent and model calls of a run may use.", factory=RunBudget
    )
    record_files: str = optional(
        choice(*RECORD_FILES),
        "When the project's files are recorded for `llc diff`: from a run's first agent on, always, never.",
        Configuration().record_files,
    )
    database: str | None = optional(
        Type("text", pattern=r"postgres(ql)?://\S+", says="a URL such as postgresql://llc@db.example/llc"),
        "The database of the cluster, for `--db` and `--on cluster`.",
    )
    workspace: WorkspaceSpec | None = optional(
        block(WorkspaceSpec),
        "The git repository that runs of a cluster work on; absent: the worker's folder.",
    )


# The blocks of the file, by where they stand, for keys that are written outside of theirs.
_BLOCKS = {
    ("history",): History,
    ("history", "keep"): Keep,
    ("tasks",): TaskSpec,
    ("budget",): RunBudget,
    ("workspace",): WorkspaceSpec,
}


def _in_its_block(key: str) -> str:
    """How a key of a block is written in the file; "" if it is of none."""
    path = next((path for path, spec in _BLOCKS.items() if key in fields_of(spec)), ())
    inner = f"{key}: …"
    for name in path[:0:-1]:
        inner = f"{name}: {{{inner}}}"
    return f"`{path[0]}: {{{inner}}}`" if path else ""


def read_configuration(path: str) -> Configuration:
    """The configuration in a file. Raises `CompileError` with every error in it."""
    document = read_document(read_source(path, must_be_regular=True))
    found = _Reader(document).configuration()
    if any(finding.is_error for finding in document.diagnostics):
        raise CompileError(document.diagnostics, [document.source])
    return found


class _Reader(AgentReader):
    def certain_home_of(self, key: str, fields: dict[str, Field]) -> str | None:
        if "secrets" not in fields:  # an inner block
            return (
                f"`{key}` belongs to the top level of the file"
                if key in fields_of(ConfigurationFile)
                else None
            )
        # Start-up: the schema of loops is loaded for an error only.
        loops = import_module(f"{__package__.rpartition('.runtime.')[0]}.frontend.loop.schema")
        here = _in_its_block(key)
        if loops.belongs_to_loop(key) is None:
            return f"write it as {here}" if here else None
        whom = "tasks" if key in fields_of(TaskSpec) else "runs"
        return f"`{key}` belongs to a loop, in its own file" + (f"; for all {whom}: {here}" if here else "")

    def configuration(self) -> Configuration:
        document, root = self.document, self.document.root
        is_empty = isinstance(root, Scalar) and root.value is None
        if is_empty or [finding.id for finding in document.diagnostics] == ["empty-document"]:
            document.diagnostics.clear()
            return Configuration()
        given = self.spec(block(ConfigurationFile), root, "the configuration") if root is not None else BAD
        if not isinstance(given, ConfigurationFile):
            return Configuration()
        models: dict[str, ModelEntry] = {}
        for entry in given.models:
            if entry.name not in models:
                models[entry.name] = ModelEntry(*(getattr(entry, key) for key in ModelEntry.field_names))
            else:
                message = f"the model `{entry.name}` is given twice"
                self.error("repeated-key", message, entry.spans["name"])
        programs = {name: self.checked(agent) for name, agent in given.agents.items()}
        self.check_task_agent(given)
        keys = (entry.key for entry in given.models if entry.key is not None)
        kept, older_than = given.history.keep, given.history.older_than
        retention = (
            kept.runs if isinstance(kept, Keep) else kept,
            age(older_than) if older_than else None,
            size(kept.size) if isinstance(kept, Keep) and kept.size else None,
        )
        return Configuration(
            secrets=(*given.secrets, *keys),
            retention=retention,
            agents=programs,
            mcp=dict(given.mcp),
            models=models,
            tasks=TaskSettings(*(getattr(given.tasks, key) for key in TaskSettings.field_names)),
            budget=given.budget.limits,
            ledgers={name: getattr(given.budget, name).limits for name in ("day", "month", "project")},
            record_files=given.record_files,
            database=given.database,
            workspace=None if given.workspace is None else (given.workspace.repo, given.workspace.ref),
        )

    def check_task_agent(self, given: ConfigurationFile) -> None:
        """That a named agent of tasks exists."""
        name = given.tasks.agent
        if isinstance(name, str) and name not in (*known_names(), *given.agents):
            help = suggest(name, [*known_names(), *given.agents], "there are")
            message = f"no agent is called `{name[:80]}`"
            self.error("unknown-agent", message, given.tasks.spans["agent"], "", help)
