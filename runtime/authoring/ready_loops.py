"""The ready loops of `llc create --from`: their files in `stdlib/ready/`, and the loops that they become.

Owns the schema of these files, the choice of a project's tools, and the substitution of parameters.
Must not be in here: questions, output, saving (`ready_creation`).
"""

from __future__ import annotations

import os.path
import re
import shlex
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, ClassVar

from ...frontend.source.files import text_source
from ...frontend.source.schema import (
    BOOLEAN,
    EXIT_CODES,
    JSON,
    TEXT,
    Spec,
    Type,
    block,
    optional,
    required,
)
from ...frontend.source.schema_reader import SchemaReader
from ...frontend.source.yaml_tree import read_document
from ...frontend.source.yaml_writer import one_line
from ...ir.diagnostics import CompileError, suggest
from ...ir.scalars import scalar_or_text
from ...stdlib import READY_LOOPS, read_text
from ..host import files
from ..host.errors import UserError, clean

_SLOT = re.compile(r"\{\{([a-z_]+)(\.failure)?\}\}")
# Words that start a program which is named after them.
_STARTERS = ("npx", "python", "python3", "-m", "uv", "poetry", "run", "sudo", "env", "time")
_LONGEST_VALUE = 20_000


class Command(Spec):
    """A command whose exit code is judged."""

    run: str = required(TEXT, "The command.")
    failure: tuple[int, ...] = required(EXIT_CODES, "Exit codes that mean `failure`.")


class Parameter(Spec):
    """What can be set when the loop is created."""

    keyed: ClassVar[bool] = True
    noun: ClassVar[str] = "the parameter"

    name: str
    doc: str = required(TEXT, "What it is; also the question.")
    default: str | int | float | None = optional(JSON, "Its value if no tool gives one.")
    like: str = optional(TEXT, "The ready loop whose `check` is the default.", "")
    sample: str = optional(TEXT, "A value, where there is no default.", "")
    is_asked: bool = optional(BOOLEAN, "Whether a dialogue asks for it.", True)


class Tool(Spec):
    """Values that fit a project with certain files."""

    files: tuple[str, ...] = required(
        Type("list", TEXT), "Patterns of files, one of which is there; none: any project."
    )
    set: Mapping[str, str | Command] = required(
        Type(
            "map",
            Type("either", options=(TEXT, block(Command)), expected="a text or a command"),
            expected="values by parameter",
        ),
        "The parameters' values.",
    )


class ReadyLoop(Spec):
    """A file of `stdlib/ready/`. loop: YAML with `{{parameter}}` and `{{parameter.failure}}` in it."""

    noun: ClassVar[str] = "a ready loop"

    summary: str = required(TEXT, "What it does, in one line.")
    about: str = required(TEXT, "What it does.")
    needs: str = required(TEXT, "What it needs.")
    adapt: str = required(TEXT, "How to adapt it.")
    parameters: Mapping[str, Parameter] = required(
        Type("map", block(Parameter), expected="parameters by name"), "What can be set."
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
    """A ready loop from the text of its file. Raises CompileError with everything that is wrong in it."""
    document = read_document(text_source(text, path))
    value = None
    if document.root is not None:
        value = SchemaReader(document).spec(block(ReadyLoop), document.root, ReadyLoop.noun)
    if any(finding.is_error for finding in document.diagnostics) or not isinstance(value, ReadyLoop):
        raise CompileError(document.diagnostics, document.sources)
    return value


# --- parameters -------------------------------------------------------------------------------


def choose(ready: ReadyLoop, given: Mapping[str, str]) -> dict[str, Any]:
    """The values of the parameters: those given, else those of the tool that fits, else the defaults.

    given: texts by parameter. The values of commands that are judged are `Command`s; None: there is no value.
    """
    tool = _tool(ready, given)
    found: dict[str, Any] = {}
    for name, parameter in ready.parameters.items():
        if name in given:
            found[name] = _given(ready, parameter, given[name])
        elif name in tool:
            found[name] = tool[name]
        elif parameter.like:
            found[name] = choose(load(parameter.like), {})["check"]
        else:
            found[name] = parameter.default
    return found


def problem_of(parameter: Parameter, text: str) -> str | None:
    """What is wrong with a value, None if nothing is."""
    if not text.strip():
        return "write something"
    if len(text) > _LONGEST_VALUE:
        return f"at most {_LONGEST_VALUE:,} characters"
    if any(not ch.isprintable() and ch not in "\n\t" for ch in text):
        return "it contains control characters"
    if isinstance(parameter.default, int | float):
        value = scalar_or_text(text.strip())
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        is_number = is_whole or (isinstance(value, float) and value - value == 0)
        if not is_number or value <= 0 or value > 1e9:
            return "write a number greater than 0"
        if parameter.name in ("rounds", "repairs") and not is_whole:
            return "write a whole number"
    return None


def render(ready: ReadyLoop, name: str, values: Mapping[str, Any]) -> str:
    """The YAML of the loop `name` with these values for all parameters."""
    slots = {"name": name, "summary": ready.summary, **values}

    def filled(match: re.Match[str]) -> str:
        value = slots[match[1]]
        if match[2]:
            return one_line(list(value.failure))
        return one_line(value.run if isinstance(value, Command) else value)

    return _SLOT.sub(filled, ready.loop)


def _given(ready: ReadyLoop, parameter: Parameter, text: str) -> Any:
    problem = problem_of(parameter, text)
    if problem is not None:
        raise UserError("bad-option", f"--set {parameter.name}=…: {problem}", parameter.doc)
    if isinstance(parameter.default, int | float):
        return scalar_or_text(text.strip())
    if f"{{{{{parameter.name}.failure}}}}" not in ready.loop:
        return text
    known = _commands(ready, parameter)
    same = next((row for row in known if _program(row.run) == _program(text)), None)
    return Command(run=text, failure=same.failure if same is not None else (1,))


def check_of(command: str) -> str | dict[str, Any]:
    """A check as a loop states it: with exit codes, if its program is known and has others than 1."""
    ready = [load(name) for name in ("lint", "types", "tests")]
    known = (row for one in ready for row in _commands(one, one.parameters["check"]))
    same = next((row for row in known if _program(row.run) == _program(command)), None)
    if same is None or same.failure == (1,):
        return command
    return {"run": command, "failure": list(same.failure)}


def _commands(ready: ReadyLoop, parameter: Parameter) -> Iterator[Command]:
    """The commands that are known for a parameter."""
    owner, name = (load(parameter.like), "check") if parameter.like else (ready, parameter.name)
    for tool in owner.tools:
        value = tool.set.get(name)
        if isinstance(value, Command):
            yield value


def _tool(ready: ReadyLoop, given: Mapping[str, str]) -> Mapping[str, str | Command]:
    """The values of the tool that is given by one of its commands, else of the one that fits the files.

    A command of another program has no tool: its companions cannot be known.
    """
    fitting = next((tool.set for tool in ready.tools if _fits(tool)), {})
    for name, text in given.items():
        known = [(tool.set[name], tool.set) for tool in ready.tools if name in tool.set]
        commands = [(value.run, row) for value, row in known if isinstance(value, Command)]
        if commands:
            same = [row for run, row in commands if _program(run) == _program(text)]
            return fitting if fitting in same else same[0] if same else {}
    return fitting


def _program(command: str) -> str:
    """The name of the program that a command runs."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    names = (word for word in words if word not in _STARTERS and "=" not in word and word[:1] != "-")
    return os.path.basename(next(names, ""))


def _fits(tool: Tool) -> bool:
    return not tool.files or any(_is_there(".", pattern) for pattern in tool.files)


def _is_there(folder: str, pattern: str) -> bool:
    """Whether a folder has a file whose path matches; a `*` matches within one name."""
    head, _, rest = pattern.partition("/")
    if "*" not in head:
        names = [head] if files.lexists(os.path.join(folder, head)) else []
    else:
        try:
            names = [name for name in files.listdir(folder) if fnmatchcase(name, head)]
        except OSError:
            names = []
    return any(not rest or _is_there(os.path.join(folder, name), rest) for name in names)
