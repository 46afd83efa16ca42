"""Ready loops of `llc create --from`: the files in `stdlib/ready/` and the loops created from them.

Owns the schema of these files, the choice of a project's tools, and the substitution of parameters. Must not
contain questions, output or saving; `ready_creation` owns them.
"""

from __future__ import annotations

import os.path
import re
import shlex
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, ClassVar

from ...frontend.source.files import text_source
from ...frontend.source.schema import BOOLEAN, EXIT_CODES, JSON, TEXT, Spec, Type, block, optional, required
from ...frontend.source.schema_reader import SchemaReader
from ...frontend.source.yaml_tree import read_document
from ...frontend.source.yaml_writer import one_line
from ...ir.diagnostics import CompileError, suggest
from ...ir.scalars import scalar_or_text
from ...stdlib import READY_LOOPS, read_text
from ..host import files
from ..host.errors import UserError, clean

_SLOT = re.compile(r"\{\{([a-z_]+)(\.failure)?\}\}")
# Words before the name of the program in a command.
_PREFIX_WORDS = ("npx", "python", "python3", "-m", "uv", "poetry", "run", "sudo", "env", "time")
_MAX_VALUE_CHARS = 20_000


class Command(Spec):
    """A command that is evaluated by its exit code."""

    run: str = required(TEXT, "The command.")
    failure: tuple[int, ...] = required(EXIT_CODES, "Exit codes that mean `failure`.")


class Parameter(Spec):
    """A parameter of a ready loop, set when the loop is created."""

    keyed: ClassVar[bool] = True
    noun: ClassVar[str] = "the parameter"

    name: str
    doc: str = required(TEXT, "Meaning of the parameter; a dialogue shows it as the question.")
    default: str | int | float | None = optional(JSON, "Value if no tool sets one.")
    like: str = optional(TEXT, "The ready loop whose `check` is the default.", "")
    sample: str = optional(TEXT, "Example of a value, for a parameter without a default.", "")
    is_asked: bool = optional(BOOLEAN, "Whether a dialogue asks for it.", True)


class Tool(Spec):
    """Values that fit a project with certain files."""

    files: tuple[str, ...] = required(
        Type("list", TEXT),
        "Patterns of files; the tool matches a project with at least one of them. Empty: any project.",
    )
    set: Mapping[str, str | Command] = required(
        Type(
            "map",
            Type("either", options=(TEXT, block(Command)), expected="a text or a command"),
            expected="a mapping from parameters to values",
        ),
        "Values of the parameters.",
    )


class ReadyLoop(Spec):
    """A file of `stdlib/ready/`. loop: YAML with `{{parameter}}` and `{{parameter.failure}}` in it."""

    noun: ClassVar[str] = "a ready loop"

    summary: str = required(TEXT, "Summary in one line.")
    about: str = required(TEXT, "Description.")
    needs: str = required(TEXT, "Requirements.")
    adapt: str = required(TEXT, "How to adapt it.")
    parameters: Mapping[str, Parameter] = required(
        Type("map", block(Parameter), expected="a mapping from names to parameters"),
        "Parameters that can be set.",
    )
    tools: tuple[Tool, ...] = optional(Type("list", block(Tool)), "Values by the project's files.", ())
    loop: str = required(TEXT, "The loop.")


def load(name: str) -> ReadyLoop:
    """The ready loop of this name. Raises UserError if there is none."""
    if name not in READY_LOOPS:
        help = suggest(name, READY_LOOPS, "ready loops")
        raise UserError("unknown-ready-loop", f"no ready loop is called `{clean(name, 60)}`", help)
    return read(read_text(f"ready/{name}.yaml"), f"{name}.yaml")


def read(text: str, path: str) -> ReadyLoop:
    """A ready loop from the text of its file. Raises CompileError with all errors in it."""
    document = read_document(text_source(text, path))
    value = None
    if document.root is not None:
        value = SchemaReader(document).spec(block(ReadyLoop), document.root, ReadyLoop.noun)
    if any(finding.is_error for finding in document.diagnostics) or not isinstance(value, ReadyLoop):
        raise CompileError(document.diagnostics, document.sources)
    return value


# --- parameters -------------------------------------------------------------------------------


def choose(ready: ReadyLoop, given: Mapping[str, str]) -> dict[str, Any]:
    """The values of all parameters: the given ones, else those of the matching tool, else the defaults.

    given: texts by parameter. In the result, a command with exit codes is a `Command`; None: no value.
    """
    tool = _tool_values(ready, given)
    values: dict[str, Any] = {}
    for name, parameter in ready.parameters.items():
        if name in given:
            values[name] = _parse(ready, parameter, given[name])
        elif name in tool:
            values[name] = tool[name]
        elif parameter.like:
            values[name] = choose(load(parameter.like), {})["check"]
        else:
            values[name] = parameter.default
    return values


def problem_of(parameter: Parameter, text: str) -> str | None:
    """The problem of a value; None if it is valid."""
    if not text.strip():
        return "enter a text"
    if len(text) > _MAX_VALUE_CHARS:
        return f"the text is longer than {_MAX_VALUE_CHARS:,} characters"
    if any(not ch.isprintable() and ch not in "\n\t" for ch in text):
        return "the text contains control characters"
    if isinstance(parameter.default, int | float):
        value = scalar_or_text(text.strip())
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        is_number = is_whole or (isinstance(value, float) and value - value == 0)
        if not is_number or value <= 0 or value > 1e9:
            return "enter a number greater than 0"
        if parameter.name in ("rounds", "repairs") and not is_whole:
            return "enter a whole number"
    return None


def render(ready: ReadyLoop, name: str, values: Mapping[str, Any]) -> str:
    """The YAML of the loop `name` with these values for all parameters."""
    slots = {"name": name, "summary": ready.summary, **values}

    def substitute(match: re.Match[str]) -> str:
        value = slots[match[1]]
        if match[2]:
            return one_line(list(value.failure))
        return one_line(value.run if isinstance(value, Command) else value)

    return _SLOT.sub(substitute, ready.loop)


def _parse(ready: ReadyLoop, parameter: Parameter, text: str) -> Any:
    """The value of a parameter from its text. Raises UserError."""
    problem = problem_of(parameter, text)
    if problem is not None:
        raise UserError("bad-option", f"--set {parameter.name}=…: {problem}", parameter.doc)
    if isinstance(parameter.default, int | float):
        return scalar_or_text(text.strip())
    if f"{{{{{parameter.name}.failure}}}}" not in ready.loop:
        return text
    known = _find_command(_known_commands(ready, parameter), text)
    return Command(run=text, failure=known.failure if known is not None else (1,))


def check_of(command: str) -> str | dict[str, Any]:
    """A check as written in a loop; with exit codes if its program is known to use others than 1."""
    loops = [load(name) for name in ("lint", "types", "tests")]
    commands = (row for ready in loops for row in _known_commands(ready, ready.parameters["check"]))
    known = _find_command(commands, command)
    if known is None or known.failure == (1,):
        return command
    return {"run": command, "failure": list(known.failure)}


def _find_command(commands: Iterator[Command], text: str) -> Command | None:
    """The first of the commands that runs the same program as `text`."""
    return next((command for command in commands if _program(command.run) == _program(text)), None)


def _known_commands(ready: ReadyLoop, parameter: Parameter) -> Iterator[Command]:
    """The commands that the tools define for a parameter."""
    owner, name = (load(parameter.like), "check") if parameter.like else (ready, parameter.name)
    for tool in owner.tools:
        value = tool.set.get(name)
        if isinstance(value, Command):
            yield value


def _tool_values(ready: ReadyLoop, given: Mapping[str, str]) -> Mapping[str, str | Command]:
    """The values of the tool to which a given command belongs, else of the tool that matches the files.

    A given command of an unknown program gives no values, because the matching other values are unknown.
    """
    by_files = next((tool.set for tool in ready.tools if _matches(tool)), {})
    for name, text in given.items():
        candidates = [(tool.set[name], tool.set) for tool in ready.tools if name in tool.set]
        commands = [(value.run, values) for value, values in candidates if isinstance(value, Command)]
        if commands:
            by_command = [values for run, values in commands if _program(run) == _program(text)]
            if by_files in by_command:
                return by_files
            return by_command[0] if by_command else {}
    return by_files


def _program(command: str) -> str:
    """The name of the program that a command runs."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    names = (word for word in words if word not in _PREFIX_WORDS and "=" not in word and word[:1] != "-")
    return os.path.basename(next(names, ""))


def _matches(tool: Tool) -> bool:
    return not tool.files or any(_has_file(".", pattern) for pattern in tool.files)


def _has_file(folder: str, pattern: str) -> bool:
    """Return whether a folder has a file whose path matches; a `*` matches within one name."""
    head, _, rest = pattern.partition("/")
    if "*" not in head:
        names = [head] if files.lexists(os.path.join(folder, head)) else []
    else:
        try:
            names = [name for name in files.listdir(folder) if fnmatchcase(name, head)]
        except OSError:
            names = []
    return any(not rest or _has_file(os.path.join(folder, name), rest) for name in names)
