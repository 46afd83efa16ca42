"""`CompileOptions`: all that a caller sets for a compilation, with typed values; names of a project's files.

The command line and the Python API build it once; the frontend receives it as a whole, and the image
cache hashes it. It is written without attrs because a run from the cache hashes it too and must not
wait for attrs. Must not contain: reading of texts (`runtime.project.load`), effects of an option.
"""

from __future__ import annotations

from .light_records import LightRecord, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Protocol
else:
    Protocol = object

# The folder of a project's loops, flows and settings.
LOOPS = ".loops"
# Folders of runs for their own files, and the variable that an `env` effect answers with the run's own.
RUN_FOLDERS = f"{LOOPS}/runs"
RUN_FOLDER = "LLC_RUN_DIR"
# Settings of the project and declarations of tools. No loop can have one of these names.
CONFIG = "config.yaml"
TOOLS = "tools.yaml"
LOOP_SUFFIXES = (".yaml", ".yml")
# Start of the path of a source of the library in a span.
LIBRARY_FOLDER = "stdlib/"
FLOW_SUFFIX = ".sexp"
SOURCE_SUFFIXES = (*LOOP_SUFFIXES, FLOW_SUFFIX)
# IR text: a program, but no source that a name can mean.
IR_SUFFIX = ".ir"


class Project(Protocol):
    """What the compiler asks the project's configuration."""

    def agents(self) -> Sequence[str] | None:
        """The names of the agents; None if they cannot be read."""

    def lacking(
        self, agent: str | tuple[str, ...], needed: Sequence[str], protocol: str | None
    ) -> Mapping[str, str]:
        """The capabilities of `needed` that an agent, by name or by its words and their protocol, lacks.

        Each with the names of agents that have it, as words of a message.
        """

    def is_priced(self, model: str) -> bool:
        """Whether the price of a model is known."""


# The model that evaluates output if neither the loop, the command line nor the environment names one:
# fast and cheap.
DEFAULT_LLM_MODEL = "claude-haiku-4-5"


# Whose meaning the keys of a loop may have.
DIALECTS = ("llc", "little-loops")


class CompileOptions(LightRecord):
    """Options of one compilation; read-only.

    max_iterations: replaces the loop's limit. context: variables of a loop. arguments: variables of a flow.
    llm_enabled: False evaluates slash commands by exit code. llm_model: replaces the loop's model.
    default_model, dialect: for loops that name none. folder: the project's `.loops`, whose tools and tasks
    flows may call; None: no project. links: loops that states with a computed name run, as
    (file, state, name), in the order in which a run met them. project: its configuration; None: not
    checked. declare: further tools and tasks, as `--declare` names them. max_expansions: limit of macro
    expansions. max_nesting: limit of bracket depth.
    """

    max_iterations: int | None = None
    context: Mapping[str, Any] = field(factory=dict)
    llm_enabled: bool | None = None
    llm_model: str | None = None
    default_model: str = DEFAULT_LLM_MODEL
    arguments: Mapping[str, Any] = field(factory=dict)
    dialect: str | None = None
    folder: str | None = None
    project: Project | None = None
    declare: tuple[str, ...] = ()
    links: tuple[tuple[str, str, str], ...] = ()
    max_expansions: int | None = None
    max_nesting: int | None = None

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"CompileOptions is read-only: {name}")

    def evolve(self, **changes: Any) -> CompileOptions:
        """A copy with some options replaced."""
        return CompileOptions(**{name: getattr(self, name) for name in self.field_names} | changes)

    def key(self) -> str:
        """Text that differs between options under which a source may compile differently.

        `project` is no part of it: its configuration is a file, hashed by its content.
        """
        return repr([(name, getattr(self, name)) for name in self.field_names if name != "project"])


DEFAULT_OPTIONS = CompileOptions()
