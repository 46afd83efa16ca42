"""Schema and reader of `.loops/config.yaml`; see `spec/cli.md`, Configuration.

Imported only if the file exists, because the schema engine imports attrs and PyYAML.
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
_WHOLE_AMOUNT = Type("integer", least=0, most=1e15)
_COMMAND = Type("list", TEXT, least=1, expected="a list: a program and its arguments")
_RUNS = Type("integer", least=0, most=1e12)
_BYTES = Type("integer", least=1, most=1e12)
_TASK_DEFAULTS = TaskSettings()


class Keep(Spec):
    """Retention limits of finished runs."""

    runs: int = optional(_RUNS, "Finished runs kept per loop.", KEPT)
    size: str | None = optional(
        Type("text", pattern=SIZE, expected="a size such as `2GB` or `500MB`"),
        "Maximum size of all finished runs; the oldest are removed first, but never the last run of a loop.",
    )


class History(Spec):
    """Retention of finished runs."""

    keep: int | Keep = optional(
        Type("either", options=(_RUNS, block(Keep)), expected="a number of runs, or `runs` and `size`"),
        "Finished runs kept per loop; with `size`, also the maximum size of all.",
        KEPT,
    )
    older_than: str | None = optional(
        Type("text", pattern=AGE, expected="an age such as `30d`, `12h` or `4w`"),
        "Remove only runs that started longer ago than this.",
    )


class ModelSpec(Spec):
    """A model that the project names itself."""

    noun: ClassVar[str] = "a model"

    name: str = required(NAME, "The name that loops and tasks use.")
    provider: str = optional(
        choice(*PROVIDERS), "The provider whose API it has; default: derived from the name.", ""
    )
    model: str = optional(TEXT, "The provider's name for it; default: `name`.", "")
    base_url: str | None = optional(TEXT, "The address of the server.")
    key: str | None = optional(VARIABLE, "The environment variable that contains the API key.")
    price: tuple[float, float] | None = optional(
        Type(
            "list",
            _AMOUNT,
            least=2,
            most=2,
            expected="a list of two numbers",
            hint="USD per million tokens of input and of output: [1, 5]",
        ),
        "USD per million input tokens and per million output tokens.",
    )


class TaskSpec(Spec):
    """Default settings of tasks."""

    model: str = optional(TEXT, "The model; default: the built-in default.", "")
    runner: str = optional(choice(*RUNNERS), "What performs tasks.", _TASK_DEFAULTS.runner)
    agent: str | tuple[str, ...] = optional(
        Type(
            "either",
            options=(TEXT, _COMMAND),
            expected="a name of `agents`, or a list: a program and its arguments",
        ),
        "The agent that performs tasks: a name of `agents`, or a program and its arguments.",
        (),
    )
    max_tokens: int = optional(COUNT, "Maximum number of tokens of an answer.", _TASK_DEFAULTS.max_tokens)
    timeout: float = optional(DURATION, "Seconds for one task.", _TASK_DEFAULTS.timeout)
    file_bytes: int = optional(
        _BYTES, "Maximum number of bytes of one file in a prompt.", _TASK_DEFAULTS.file_bytes
    )
    files_bytes: int = optional(
        _BYTES, "Maximum number of bytes of all files in a prompt.", _TASK_DEFAULTS.files_bytes
    )


class Amounts(Spec):
    """Limits of agent and model calls."""

    usd: float | None = optional(_AMOUNT, "Maximum cost in US dollars.")
    tokens: int | None = optional(_WHOLE_AMOUNT, "Maximum number of tokens, input and output.")
    calls: int | None = optional(_WHOLE_AMOUNT, "Maximum number of calls.")
    seconds: float | None = optional(_AMOUNT, "Maximum duration of all calls, in seconds.")

    @property
    def limits(self) -> dict[str, float]:
        """The limits that are set, by unit."""
        bounds = {unit: getattr(self, unit) for unit in UNITS}
        return {unit: bound for unit, bound in bounds.items() if bound is not None}


class RunBudget(Amounts):
    """Limits of the agent and model calls of one run, and of all runs of the project."""

    day: Amounts = optional(block(Amounts), "Limits of all runs per day.", factory=Amounts)
    month: Amounts = optional(block(Amounts), "Limits of all runs per month.", factory=Amounts)
    project: Amounts = optional(block(Amounts), "Limits of all runs in total.", factory=Amounts)


class WorkspaceSpec(Spec):
    """Repository that runs of a cluster work on; each run has its own checkout."""

    noun: ClassVar[str] = "a workspace"

    repo: str = optional(TEXT, "Address or path of the git repository; default: the remote `origin`.", "")
    ref: str = optional(
        TEXT, "Branch, tag or commit; default: the project's files at the time of submission.", ""
    )


class ConfigurationFile(Spec):
    """The configuration of a project."""

    noun: ClassVar[str] = "the configuration"

    secrets: tuple[str, ...] = optional(
        Type("list", VARIABLE), "Environment variables whose values are never shown or written.", ()
    )
    history: History = optional(block(History), "Retention of finished runs.", factory=History)
    models: tuple[ModelSpec, ...] = optional(
        Type("list", block(ModelSpec)), "Models that the project names itself.", ()
    )
    tasks: TaskSpec = optional(block(TaskSpec), "Default settings of tasks.", factory=TaskSpec)
    mcp: Mapping[str, McpServer] = optional(SERVERS, "MCP servers by name.", factory=dict)
    agents: Mapping[str, AgentSpec] = optional(
        Type("map", block(AgentSpec)), "Agent programs by name.", factory=dict
    )
    budget: RunBudget = optional(
        block(RunBudget), "Limits of the agent and model calls of a run.", factory=RunBudget
    )
    record_files: str = optional(
        choice(*RECORD_FILES),
        "When runs record the project's files for `llc diff`: from their first agent on, always, or never.",
        Configuration().record_files,
    )
    database: str | None = optional(
        Type(
            "text", pattern=r"postgres(ql)?://\S+", expected="a URL such as postgresql://llc@db.example/llc"
        ),
        "The database of the cluster, for `--db` and `--on cluster`.",
    )
    workspace: WorkspaceSpec | None = optional(
        block(WorkspaceSpec), "Git repository that runs of a cluster work on; default: the worker's folder."
    )


# Blocks of the file by path; used to suggest the right place for a misplaced key.
_BLOCKS = {
    ("history",): History,
    ("history", "keep"): Keep,
    ("tasks",): TaskSpec,
    ("budget",): RunBudget,
    ("workspace",): WorkspaceSpec,
}


def _block_notation(key: str) -> str:
    """The notation of a key inside its block, for a help text; "" if the key belongs to no block."""
    path = next((path for path, spec in _BLOCKS.items() if key in fields_of(spec)), ())
    inner = f"{key}: …"
    for name in path[:0:-1]:
        inner = f"{name}: {{{inner}}}"
    return f"`{path[0]}: {{{inner}}}`" if path else ""


def read_configuration(path: str) -> Configuration:
    """Read a configuration file. Raises `CompileError` with all its errors."""
    document = read_document(read_source(path, must_be_regular=True))
    configuration = _ConfigurationReader(document).configuration()
    if any(diagnostic.is_error for diagnostic in document.diagnostics):
        raise CompileError(document.diagnostics, [document.source])
    return configuration


class _ConfigurationReader(AgentReader):
    def help_for_common_mistake(self, key: str, fields: dict[str, Field]) -> str | None:
        if "secrets" not in fields:  # an inner block
            return (
                f"`{key}` belongs to the top level of the file"
                if key in fields_of(ConfigurationFile)
                else None
            )
        # Start-up time: only an error needs the schema of loops.
        loops = import_module(f"{__package__.rpartition('.runtime.')[0]}.frontend.loop.schema")
        notation = _block_notation(key)
        if loops.belongs_to_loop(key) is None:
            return f"write it as {notation}" if notation else None
        scope = "tasks" if key in fields_of(TaskSpec) else "runs"
        alternative = f"; for all {scope}: {notation}" if notation else ""
        return f"`{key}` belongs to a loop, in its own file{alternative}"

    def configuration(self) -> Configuration:
        document, root = self.document, self.document.root
        is_empty = isinstance(root, Scalar) and root.value is None
        if is_empty or [diagnostic.id for diagnostic in document.diagnostics] == ["empty-document"]:
            document.diagnostics.clear()
            return Configuration()
        spec = self.spec(block(ConfigurationFile), root, "the configuration") if root is not None else BAD
        if not isinstance(spec, ConfigurationFile):
            return Configuration()
        models: dict[str, ModelEntry] = {}
        for entry in spec.models:
            if entry.name not in models:
                models[entry.name] = ModelEntry(*(getattr(entry, key) for key in ModelEntry.field_names))
            else:
                message = f"the model `{entry.name}` is given twice"
                self.error("repeated-key", message, entry.spans["name"])
        agents = {name: self.checked(agent) for name, agent in spec.agents.items()}
        self.check_task_agent(spec)
        keys = (entry.key for entry in spec.models if entry.key is not None)
        kept, older_than = spec.history.keep, spec.history.older_than
        retention = (
            kept.runs if isinstance(kept, Keep) else kept,
            age(older_than) if older_than else None,
            size(kept.size) if isinstance(kept, Keep) and kept.size else None,
        )
        return Configuration(
            secrets=(*spec.secrets, *keys),
            retention=retention,
            agents=agents,
            mcp=dict(spec.mcp),
            models=models,
            tasks=TaskSettings(*(getattr(spec.tasks, key) for key in TaskSettings.field_names)),
            budget=spec.budget.limits,
            ledgers={name: getattr(spec.budget, name).limits for name in ("day", "month", "project")},
            record_files=spec.record_files,
            database=spec.database,
            workspace=None if spec.workspace is None else (spec.workspace.repo, spec.workspace.ref),
        )

    def check_task_agent(self, spec: ConfigurationFile) -> None:
        """Report a task agent with an unknown name."""
        name = spec.tasks.agent
        if isinstance(name, str) and name not in (*known_names(), *spec.agents):
            help = suggest(name, [*known_names(), *spec.agents], "there are")
            message = f"no agent is called `{name[:80]}`"
            self.error("unknown-agent", message, spec.tasks.spans["agent"], "", help)
