"""The command line: verbs, their options and their help; `spec/cli.md`.

Owns reading the words of a command and writing plain answers. What a verb does beyond one call
stands in its own module: `launch` for runs, `programs` for what is run.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Callable, Iterable
from typing import Annotated, Any

import typer

from ..ir.diagnostics import CompileError, Diagnostic, render_all, suggest
from . import launch, options, runs
from .errors import EXIT_FAILURE, EXIT_OK, EXIT_USAGE, UserError
from .journal import JournalError, write_file
from .options import Option, Values
from .screen import Screen
from .verbs import VERBS

app = typer.Typer(
    help="Compile automation loops to states and jumps, and run them.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)
# What typer raises for words that it cannot read; it exports only a kind of it.
_UsageError: Any = typer.BadParameter.__base__


def main(program: str, words: list[str]) -> int:
    """Read a command and do it; the exit code."""
    command = typer.main.get_command(app)
    try:
        _refuse_unknown_verb(program, words)
        code = command.main(args=words, prog_name=program, standalone_mode=False)
        return code if isinstance(code, int) else EXIT_OK
    except _UsageError as error:
        error.show()
        _answer_usage(words, error.format_message())
        return EXIT_USAGE
    except typer.Abort:
        return EXIT_FAILURE
    except SystemExit as exit:
        return exit.code if isinstance(exit.code, int) else EXIT_OK if exit.code is None else EXIT_USAGE
    except UserError as error:
        _show([Diagnostic(error.id, error.message, help=error.help)])
        if error.exit_code == EXIT_USAGE:
            _answer_usage(words, error.message)
        return error.exit_code
    except JournalError as error:
        _show([Diagnostic("cannot-write", error.message)])
        return EXIT_USAGE
    except CompileError as error:
        _show(error.diagnostics, error.sources)
        return EXIT_USAGE


def _answer_usage(words: list[str], message: str) -> None:
    """`run` and `resume` answer in JSON where that was asked for, even if nothing else can be read."""
    own = words[: words.index("--")] if "--" in words else words
    if own[:1] in (["run"], ["resume"]) and "--json" in own:
        launch.usage_answer(message)


def _refuse_unknown_verb(program: str, words: list[str]) -> None:
    first = words[0] if words else "--help"
    if first.startswith("-") or first in VERBS:
        return
    is_loop = first in runs.loop_files() or (runs.is_path(first) and os.path.isfile(first))
    help = f"to run it: {program} run {first}" if is_loop else suggest(first, VERBS, "commands")
    raise UserError("unknown-command", f"{program} has no command `{first}`", help)


def _show(diagnostics: Iterable[Diagnostic], sources: Iterable[Any] = ()) -> None:
    screen = Screen(sys.stderr)
    screen.write(render_all(diagnostics, sources, screen.color) + "\n")


def _write(text: str) -> None:
    """To stdout, encoded as it can be; a reader that went away ends the command quietly.

    UserError where it cannot be written.
    """
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    Screen(sys.stdout).deliver(text.encode(encoding, "backslashreplace"))


def _warn(text: str) -> None:
    Screen(sys.stderr).write(text + "\n\n")


def _write_json(value: Any) -> None:
    _write(json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n")


# --- options shared by verbs ------------------------------------------------------------------


def _complete_loop(incomplete: str) -> list[str]:
    """What a loop's name or path may go on with."""
    names = [name for name in runs.loop_files() if name.startswith(incomplete)]
    folder, _, start = incomplete.rpartition("/")
    try:
        files = sorted(os.listdir(folder or "."))
    except OSError:
        return names
    for file in files:
        path = os.path.join(folder, file) if folder else file
        if file.startswith(start) and (start or not file.startswith(".")):
            if os.path.isdir(path):
                names.append(path + "/")
            elif runs.is_path(file):
                names.append(path)
    return names


def _complete_run(incomplete: str) -> list[str]:
    """Unfinished runs, and the loops they are of."""
    found = list(runs.runs_in(runs.ROOT))
    names = dict.fromkeys(name for run in found for name in (run.name, run.id))
    return [name for name in names if name.startswith(incomplete)]


_TYPES: dict[str, Any] = {
    options.FLAG: bool,
    options.COUNT: int | None,
    options.TEXT: str | None,
    options.PAIR: list[str] | None,
}


def _parameter(option: Option) -> inspect.Parameter:
    """An option's row as typer wants it."""
    limits: dict[str, Any] = {"min": 1} if option.kind == options.COUNT else {}
    about = typer.Option(*option.names, help=option.doc, metavar=option.metavar, **limits)
    return inspect.Parameter(
        option.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=False if option.kind == options.FLAG else None,
        annotation=Annotated[_TYPES[option.kind], about],
    )


def _values(rows: tuple[Option, ...], target: str, given: dict[str, Any]) -> Values:
    """The same values that `options.read` makes."""
    values = dict(given)
    for option in rows:
        if option.kind == options.PAIR:
            values[option.name] = tuple(_pair(option, text) for text in given.get(option.name) or ())
    return Values(rows, target, **values)


def _pair(option: Option, text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not (key and sign):
        raise UserError(
            "bad-option",
            f"{option.names[0]} takes K=V, not `{text}`",
            f"such as {option.names[0]} target=src/",
        )
    return key, value


def _command(rows: tuple[Option, ...], *own: inspect.Parameter) -> Callable[[Any], Any]:
    """Declare a verb whose options are `own` and those of `rows`; the function gets (given)."""

    def declare(function: Callable[[dict[str, Any]], int]) -> Any:
        def call(**given: Any) -> None:
            raise typer.Exit(function(given))

        name = function.__name__.rstrip("_")
        parameters = [*own, *(_parameter(row) for row in rows)]
        parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {p.name: p.annotation for p in parameters}
        return app.command(name, help=VERBS[name])(call)

    return declare


def _argument(
    name: str, help: str, complete: Callable[[str], list[str]] = _complete_loop
) -> inspect.Parameter:
    about = typer.Argument(help=help, metavar=name.upper(), autocompletion=complete, show_default=False)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[str, about])


def _option(
    type: Any, name: str, *names: str, help: str, default: Any = None, metavar: str | None = None
) -> Any:
    about = typer.Option(*names, help=help, metavar=metavar)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[type, about]
    )


_LOOP = _argument("loop", "A loop's name, or the path of a .yaml, .sexp or .llb file.")
_LOOP_ABOUT = _LOOP.annotation.__metadata__[0]
_JSON = _option(bool, "json", "--json", help="Write JSON to stdout.", default=False)


# --- verbs ------------------------------------------------------------------------------------


@_command(options.RUN, _LOOP.replace(default=None, annotation=Annotated[str | None, _LOOP_ABOUT]))
def run(given: dict[str, Any]) -> int:
    target = given.pop("loop")
    if (target is None) == (given["expression"] is None):
        raise UserError("bad-option", "name one thing to run", "a loop, a file, or -e EXPRESSION")
    return launch.run(_values(options.RUN, target or "", given))


@_command(options.RESUME, _argument("run", "A loop's name, or a run's id.", _complete_run))
def resume(given: dict[str, Any]) -> int:
    return launch.resume(_values(options.RESUME, given.pop("run"), given))


@_command(
    (options.ARGUMENTS,),
    inspect.Parameter(
        "loops",
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[
            list[str] | None,
            typer.Argument(
                help="Names or paths; without any, all of .loops/.",
                metavar="[LOOP]…",
                autocompletion=_complete_loop,
            ),
        ],
    ),
    _option(bool, "strict", "--strict", help="Let warnings fail too.", default=False),
    _JSON,
)
def validate(given: dict[str, Any]) -> int:
    from . import validation

    values = _values((options.ARGUMENTS,), "", given)
    findings = validation.check(given["loops"] or [], values.arguments)
    if given["json"]:
        _write_json(validation.as_json(findings, given["strict"]))
    else:
        screen = Screen(sys.stderr)
        screen.write(validation.as_text(findings, given["strict"], screen.color))
    is_good = all(finding.is_valid(given["strict"]) for finding in findings)
    return EXIT_OK if is_good else EXIT_USAGE


@_command(
    options.OVERRIDES,
    _LOOP,
    _option(
        str | None,
        "emit",
        "--emit",
        help="What to print: ir (the default), bytecode, fsm, expanded.",
        metavar="FORM",
    ),
    _option(
        str | None,
        "output",
        "--output",
        "-o",
        help="Write a file instead: .yaml (the FSM), .llb (an image) or .ir (text).",
        metavar="FILE",
    ),
    _option(bool, "no_sources", "--no-sources", help="Leave the source text out of an image.", default=False),
)
def compile_(given: dict[str, Any]) -> int:
    from . import products

    values = _values(options.OVERRIDES, given["loop"], given)
    text = products.compile_to(values, given["emit"], given["output"], not given["no_sources"], _warn)
    if text is not None:
        _write(text)
    return EXIT_OK


@_command((), _LOOP, _JSON)
def disasm(given: dict[str, Any]) -> int:
    from . import products

    _write(products.disassembly(Values(options.OVERRIDES, given["loop"]), given["json"], _warn))
    return EXIT_OK


@_command(
    (),
    inspect.Parameter(
        "files",
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[
            list[str] | None,
            typer.Argument(
                help="Files, folders, names in .loops/, or - for stdin; without any, all of .loops/.",
                metavar="[FILE]…",
            ),
        ],
    ),
    _option(
        bool, "check", "--check", help="Write nothing; exit with 1 if something would change.", default=False
    ),
    _option(bool, "diff", "--diff", help="Write nothing; print what would change.", default=False),
)
def fmt(given: dict[str, Any]) -> int:
    from . import formatting

    is_look = given["check"] or given["diff"]
    found = [formatting.look(path) for path in formatting.files(given["files"] or [])]
    errors = [one.error for one in found if one.error is not None]
    for one in found:
        if one.error is not None:
            continue
        if given["diff"]:
            _write(formatting.difference(one))
        elif one.path == formatting.STDIN_PATH:
            _write("" if is_look else one.result)
        elif one.is_changed:
            if not is_look:
                formatting.replace(one)
            _write(f"{'would change' if is_look else 'formatted'} {one.path}\n")
    if errors:
        _show(
            [d for error in errors for d in error.diagnostics], [s for error in errors for s in error.sources]
        )
    return formatting.exit_code(found, given["check"])


@_command(
    (),
    _option(bool, "running", "--running", help="Show the runs that have not ended.", default=False),
    _JSON,
)
def list_(given: dict[str, Any]) -> int:
    from . import listing

    rows = listing.unfinished_runs() if given["running"] else listing.loops()
    if given["json"]:
        _write_json(rows)
    else:
        _write(listing.as_table(rows, given["running"]))
    return EXIT_OK


@_command((), _option(str | None, "output", "--output", "-o", help="Write to a file.", metavar="FILE"))
def schema(given: dict[str, Any]) -> int:
    from ..frontend.json_schema import json_schema

    text = json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"
    if given["output"]:
        write_file(given["output"], text.encode(), durable=False)
    else:
        _write(text)
    return EXIT_OK


@app.callback(invoke_without_command=True)
def _program(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="With --version: show more.")] = False,
) -> None:
    if version:
        _write(_version(verbose))
        raise typer.Exit(EXIT_OK)
    if context.invoked_subcommand is None:
        _write(context.get_help() + "\n")
        raise typer.Exit(EXIT_USAGE)


def _version(verbose: bool) -> str:
    from .. import __version__

    if not verbose:
        return f"llc {__version__}\n"
    import platform

    from ..frontend.compile import DEFAULT_LLM_MODEL
    from ..vm import image, snapshot
    from . import journal

    rows = {
        "llc": __version__,
        "default model": os.environ.get("LLC_LLM_MODEL") or DEFAULT_LLM_MODEL,
        "Python": f"{platform.python_version()} ({sys.executable})",
        "platform": platform.platform(),
        "image format": image.VERSION,
        "snapshot format": snapshot.FORMAT,
        "journal format": journal.FORMAT,
    }
    width = max(map(len, rows))
    return "".join(f"{name.ljust(width)}  {value}\n" for name, value in rows.items())


if {command.name for command in app.registered_commands} != set(VERBS):
    raise AssertionError("a verb has no command, or a command no verb")
