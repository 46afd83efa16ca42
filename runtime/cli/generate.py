"""Generator of the module `table` from the Typer application: `python -m llc.runtime.cli.generate`."""

from __future__ import annotations

import inspect
from types import NoneType
from typing import Any, get_args, get_origin

from ..host import files
from ..project.options import FLAG, INTEGER, NUMBER, TEXT, CommandParameter
from .typer_app import GROUPS, OPEN, about_program, hints, load
from .typer_parameters import HEADINGS

_HEAD = '''\
"""The subcommands and their parameters as data. Generated: `python -m llc.runtime.cli.generate`."""

# fmt: off
# ruff: noqa: E501
from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Arguments of `CommandParameter`, by key.
'''
_KINDS = {bool: FLAG, int: INTEGER, float: NUMBER, str: TEXT}
# The options that Typer adds to the program.
_COMPLETION = (
    ("install_completion", ("--install-completion",), FLAG, "Install completion for the current shell."),
    ("show_completion", ("--show-completion",), FLAG, "Show the completion script for the current shell."),
)
# Defaults of the optional arguments of `CommandParameter`, which follow the first four.
_DEFAULTS = tuple(getattr(CommandParameter, name) for name in CommandParameter.field_names[4:])


def table() -> str:
    """The text of `table`."""
    rows: dict[str, tuple[Any, ...]] = {row[0]: row for row in _COMPLETION}
    program = " ".join([_keys(rows, "program", about_program), *(row[0] for row in _COMPLETION)])
    subcommands = []
    for name, group in ((name, group) for group, names in GROUPS.items() for name in names.split()):
        function = load(name)
        doc, _, rest = (inspect.getdoc(function) or "").partition("\n")
        _, _, examples = rest.partition("Examples:\n")
        lines = tuple(line.strip() for line in examples.splitlines())
        path = f"{function.__module__.removeprefix(f'{__package__}.')}:{function.__name__}"
        keys = _keys(rows, name, function)
        subcommands.append((name, (doc, path, name in OPEN, lines, keys, group)))
    about = (inspect.getdoc(about_program), program)
    return "".join(
        [
            f"{_HEAD}PARAMETERS: dict[str, Any] = {{\n",
            *(f"    {key!r}: {row!r},\n" for key, row in rows.items()),
            f"}}\n\nPROGRAM = {about!r}\n\n",
            "# By name: description, function, is_open, examples, keys of parameters, group.\n",
            "SUBCOMMANDS: dict[str, tuple[str, str, bool, tuple[str, ...], str, str]] = {\n",
            *(f"    {name!r}: {subcommand!r},\n" for name, subcommand in subcommands),
            "}\n",
        ]
    )


def _keys(rows: dict[str, tuple[Any, ...]], subcommand: str, function: Any) -> str:
    """The keys of a function's parameters in the order of the help; their rows are added to `rows`."""
    keys = []
    annotations = hints(function)
    for name, parameter in inspect.signature(function).parameters.items():
        row = _row(name, parameter.default, *get_args(annotations[name]))
        key = next((key for key, other in rows.items() if other == row), None)
        if key is None:
            key = name if name not in rows else f"{name}:{subcommand}"
            rows[key] = row
        keys.append(key)
    order = ("", *HEADINGS)
    return " ".join(sorted(keys, key=lambda key: order.index(CommandParameter(*rows[key]).heading)))


def _row(name: str, default: Any, type: Any, declared: Any) -> tuple[Any, ...]:
    """The arguments of `CommandParameter` for a parameter. declared: its Typer declaration."""
    base_type = next(
        (arg for arg in get_args(type) if arg is not NoneType and get_origin(type) is not list), type
    )
    is_list = get_origin(base_type) is list
    completer = declared.autocompletion
    # Typer stores the first name of an option of an annotation in the field of the default.
    names = [text for text in (declared.default, *(declared.param_decls or ())) if isinstance(text, str)]
    is_required = default is inspect.Parameter.empty
    row = [
        name,
        tuple(names),
        _KINDS[get_args(base_type)[0] if is_list else base_type],
        declared.help,
        declared.metavar or "",
        f"{completer.__module__.removeprefix(f'{__package__}.')}:{completer.__name__}" if completer else "",
        None if is_required or not names else default or None,
        declared.min,
        declared.max,
        is_list,
        is_required,
        getattr(declared, "rich_help_panel", None) or "",
    ]
    while len(row) > 4 and row[-1] == _DEFAULTS[len(row) - 5]:
        row.pop()
    return tuple(row)


if __name__ == "__main__":
    path = __file__.replace("generate", "table")
    text = table()
    with files.open(path, "w", encoding="utf-8") as file:
        file.write(text)
