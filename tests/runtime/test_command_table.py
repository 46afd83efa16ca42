"""The table of subcommands: it is complete, equals the Typer application and parses like Typer."""

from __future__ import annotations

import functools
import inspect
import pkgutil
from importlib import import_module
from typing import Any

import typer
from hypothesis import example, given
from hypothesis import strategies as st

from llc.runtime.cli import commands, generate, parse, project_commands, subcommands, table, typer_app
from llc.runtime.cli.table import SUBCOMMANDS
from llc.runtime.host.errors import UserError
from llc.runtime.project.options import FLAG

COMMAND = "python -m llc.runtime.cli.generate"
# Arguments that can be any text, so that nothing completes them; a shell offers files.
FREE_TEXT = {"files", "query"}
FUNCTIONS = [typer_app.load(name) for names in typer_app.GROUPS.values() for name in names.split()]


def test_the_table_is_what_typer_declares() -> None:
    """A changed declaration needs a new table."""
    with open(table.__file__, encoding="utf-8") as file:
        assert file.read() == generate.table(), f"the table is out of date; run: {COMMAND}"


def test_every_function_is_a_subcommand() -> None:
    """Every public function of `cli/commands` is in the table, except those that complete values."""
    packages = (commands, project_commands)
    modules = [
        f"{package.__name__}.{module.name}"
        for package in packages
        for module in pkgutil.iter_modules(package.__path__)
    ]
    for module in map(import_module, modules):
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ != module.__name__ or name.startswith(("_", "complete_")):
                continue
            assert function in FUNCTIONS, f"{name} is missing in GROUPS of cli/typer_app.py"


def test_every_argument_is_completed() -> None:
    """By a completer, by the words of its metavar, or by the shell if any text is allowed."""
    for name in SUBCOMMANDS:
        for row in subcommands.find(name).arguments:
            is_choice = "|" in row.metavar and row.metavar.islower()
            assert row.completer or is_choice or row.name in FREE_TEXT, (
                f"`{name}`: {row.name} has no autocompletion"
            )


def test_every_function_of_the_table_exists() -> None:
    """The paths in the table refer to functions whose parameters have the names in the table."""
    for name in SUBCOMMANDS:
        subcommand = subcommands.find(name)
        function = subcommands.load(subcommand.function)
        assert function in FUNCTIONS
        assert {row.name for row in (*subcommand.arguments, *subcommand.options)} == set(
            inspect.signature(function).parameters
        )
        for row in subcommand.arguments:
            assert not row.completer or callable(subcommands.load(row.completer))


# --- agreement with Typer -----------------------------------------------------------------------

_recorded: dict[str, Any] = {}


def _recording(function: Any) -> Any:
    """A function with the same parameters that only records them."""

    @functools.wraps(function)
    def record(**values: Any) -> int:
        _recorded.update(values)
        return 0

    return record


_RECORDERS = tuple(map(_recording, FUNCTIONS))
_APP = typer_app.build(_RECORDERS)
_COMMAND = typer.main.get_command(_APP)


def parse_with_typer(words: list[str]) -> dict[str, Any] | None:
    """Arguments that Typer passes to the function of a subcommand; None if it refuses the words."""
    _recorded.clear()
    try:
        _COMMAND(words, prog_name="llc", standalone_mode=False)
    except typer.TyperException:
        return None
    return dict(_recorded)


def parse_with_table(words: list[str]) -> dict[str, Any] | None:
    """Arguments that the table gives, with the defaults of the function; None if it refuses the words."""
    subcommand = subcommands.find(words[0])
    try:
        values = parse.read(f"llc {words[0]}", subcommand, words[1:])
    except UserError:
        return None
    signature = inspect.signature(subcommands.load(subcommand.function)).parameters
    return {name: parameter.default for name, parameter in signature.items()} | (values or {})


@st.composite
def command_lines(draw: Any) -> list[str]:
    """Command lines with arguments and options, also of other subcommands, in all forms."""
    name = draw(st.sampled_from(list(SUBCOMMANDS)))
    subcommand = subcommands.find(name)
    words = [name]
    # Without `inf` and `nan`: Typer accepts them, although they are no durations.
    values = st.sampled_from(["1", "0", "-1", "300", "7.5", "x", "a=b", "-", "--", "", "-n", "--json", " 2"])
    for _ in range(draw(st.integers(0, 5))):
        if not subcommand.options or draw(st.booleans()):
            words.append(draw(values))
            continue
        row = draw(st.sampled_from(subcommand.options))
        option = draw(st.sampled_from(row.names))
        form = draw(st.integers(0, 4))
        if form == 0:
            words.append(option)
        elif form == 1:
            words.append(f"{option}={draw(values)}")
        elif form == 2:
            words.append(option + draw(st.sampled_from(["5", "q", "v", "x"])))
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
@given(command_lines())
def test_table_parser_agrees_with_typer(words: list[str]) -> None:
    """The same lines are accepted, with the same values."""
    actual, expected = parse_with_table(words), parse_with_typer(words)
    assert (actual is None) == (expected is None), words
    if actual is not None and expected is not None:
        assert {name: value or None for name, value in actual.items()} == {
            name: value or None for name, value in expected.items()
        }
