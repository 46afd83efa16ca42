"""The table of subcommands: it is complete, equals the Typer application and parses like Typer."""

from __future__ import annotations

import functools
import inspect
import pkgutil
from importlib import import_module
from typing import Any

import typer
from hypothesis import example, given
from hypothesis import strategies as some

from llc.runtime.cli import commands, generate, parse, project_commands, subcommands, table, typer_app
from llc.runtime.cli.table import SUBCOMMANDS
from llc.runtime.host.errors import UserError
from llc.runtime.project.options import FLAG

COMMAND = "python -m llc.runtime.cli.generate"
# Arguments that can be any text, so that nothing completes them; a shell offers files.
FREE = {"files", "query"}
FUNCTIONS = [typer_app.load(name) for names in typer_app.GROUPS.values() for name in names.split()]


def test_the_table_is_what_typer_declares() -> None:
    """A changed declaration needs a new table."""
    with open(table.__file__, encoding="utf-8") as file:
        assert file.read() == generate.table(), f"the table is out of date; run: {COMMAND}"


def test_every_function_is_a_subcommand() -> None:
    """A public function of `cli/commands` whose parameters Typer can read, unless it completes values."""
    packages = (commands, project_commands)
    modules = [
        f"{one.__name__}.{found.name}" for one in packages for found in pkgutil.iter_modules(one.__path__)
    ]
    for module in map(import_module, modules):
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ != module.__name__ or name.startswith(("_", "complete_")):
                continue
            assert function in FUNCTIONS, f"{name} is missing in GROUPS of cli/typer_app.py"


def test_every_argument_is_completed() -> None:
    """By a completer, by the words of its metavar, or by the shell where it is any text."""
    for name in SUBCOMMANDS:
        for row in subcommands.find(name).arguments:
            is_choice = "|" in row.metavar and row.metavar.islower()
            assert row.completer or is_choice or row.name in FREE, (
                f"`{name}`: {row.name} has no autocompletion"
            )


def test_every_function_is_found() -> None:
    """The paths in the table lead to functions whose parameters have the names in the table."""
    for name in SUBCOMMANDS:
        verb = subcommands.find(name)
        function = subcommands.load(verb.function)
        assert function in FUNCTIONS
        assert {row.name for row in (*verb.arguments, *verb.options)} == set(
            inspect.signature(function).parameters
        )
        for row in verb.arguments:
            assert not row.completer or callable(subcommands.load(row.completer))


# --- the law ------------------------------------------------------------------------------------

_read: dict[str, Any] = {}


def _recording(function: Any) -> Any:
    """A function with the same parameters that only records them."""

    @functools.wraps(function)
    def record(**values: Any) -> int:
        _read.update(values)
        return 0

    return record


_MADE = tuple(map(_recording, FUNCTIONS))
_APP = typer_app.build(_MADE)
_COMMAND = typer.main.get_command(_APP)


def by_typer(words: list[str]) -> dict[str, Any] | None:
    """What Typer gives to the function of a subcommand; None where it refuses the words."""
    _read.clear()
    try:
        _COMMAND(words, prog_name="llc", standalone_mode=False)
    except typer.TyperException:
        return None
    return dict(_read)


def by_table(words: list[str]) -> dict[str, Any] | None:
    """What the table gives to it, with the defaults of the function."""
    verb = subcommands.find(words[0])
    try:
        values = parse.read(f"llc {words[0]}", verb, words[1:])
    except UserError:
        return None
    signature = inspect.signature(subcommands.load(verb.function)).parameters
    return {name: parameter.default for name, parameter in signature.items()} | (values or {})


@some.composite
def lines(draw: Any) -> list[str]:
    """Lines of a subcommand: its options and others, in all forms, with and without values, and arguments."""
    name = draw(some.sampled_from(list(SUBCOMMANDS)))
    verb = subcommands.find(name)
    words = [name]
    # Without `inf` and `nan`, which are no times: Typer accepts them.
    values = some.sampled_from(
        ["1", "0", "-1", "300", "7.5", "x", "a=b", "-", "--", "", "-n", "--json", " 2"]
    )
    for _ in range(draw(some.integers(0, 5))):
        if not verb.options or draw(some.booleans()):
            words.append(draw(values))
            continue
        row = draw(some.sampled_from(verb.options))
        option = draw(some.sampled_from(row.names))
        form = draw(some.integers(0, 4))
        if form == 0:
            words.append(option)
        elif form == 1:
            words.append(f"{option}={draw(values)}")
        elif form == 2:
            words.append(option + draw(some.sampled_from(["5", "q", "v", "x"])))
        elif row.kind == FLAG:
            words.append(option)
        else:
            words += [option, draw(values)]
    return words


@example(["logs", "x", "-fn5"])
@example(["run", "x", "-qv", "--jobs=2", "--context", "a=b", "--context=c=d"])
@example(["task", "--json", "x", "--", "--json", "-z"])
@example(["run", "--", "-x"])
@example(["context", "a", "b", "-n5", "--limit", "7"])
@given(lines())
def test_the_reader_reads_as_typer_does(words: list[str]) -> None:
    """The same lines are accepted, with the same values."""
    found, wanted = by_table(words), by_typer(words)
    assert (found is None) == (wanted is None), words
    if found is not None and wanted is not None:
        assert {name: value or None for name, value in found.items()} == {
            name: value or None for name, value in wanted.items()
        }
