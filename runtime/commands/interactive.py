"""The verbs that are talked to: task, repl."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Annotated, Any

import typer

from .. import options
from .plumbing import Verb, command, values


def complete_task(context: typer.Context, incomplete: str) -> list[str]:
    """Tasks and tools; behind a name its parameters."""
    from ...frontend.declared import Declared
    from ..store import runs
    from ..terminal import task_line

    words = context.params.get("words") or []
    found = task_line.words_after(words, Declared(runs.LOOPS))
    if words:
        found += [name for row in options.TASK for name in row.names if name.startswith("--")]
        found.append("--help")
    return [word for word in found if word.startswith(incomplete)]


class _Task(Verb):
    """What stands behind the task's name is the task's, also where it begins with `-`."""

    def shell_complete(self, context: Any, incomplete: str) -> Any:
        if not context.params.get("words"):
            return super().shell_complete(context, incomplete)
        return [
            SimpleNamespace(value=word, type="plain", help=None)
            for word in complete_task(context, incomplete)
        ]


_WORDS = inspect.Parameter(
    "words",
    inspect.Parameter.KEYWORD_ONLY,
    annotation=Annotated[
        list[str],
        typer.Argument(
            help="A task or tool with its parameters, or an S-expression; NAME --help shows what it takes.",
            metavar="NAME [KEY=VALUE]… [--FLAG]… | '(EXPRESSION)'",
            autocompletion=complete_task,
            show_default=False,
        ),
    ],
)


@command(
    options.TASK,
    _WORDS,
    examples=(
        "llc task user:review --help",
        'llc task user:review diff="$(git diff)" files=\'["README.md"]\'',
        "llc task system:execute_shell_command command='make test' timeout=60 --json",
        'llc task \'(map (user:review (diff item)) (list "a" "b"))\'',
    ),
    # What stands behind the name is the task's.
    settings={"allow_interspersed_args": False},
    kind=_Task,
)
def task(given: dict[str, Any]) -> int:
    from ..effects import task_run

    words = given.pop("words")
    read = values(options.TASK, "", given)
    return task_run.run(words, {row.name: getattr(read, row.name) for row in options.TASK})


@command((*options.LIMITS, options.TIER))
def repl(given: dict[str, Any]) -> int:
    from ..terminal import repl as reading

    return reading.run(values((*options.LIMITS, options.TIER), "", given))
