"""The subcommand schema."""

from __future__ import annotations

import json

from ....frontend.loop.json_schema import json_schema
from ....ir import results
from ....ir.diagnostics import suggest
from ...host.errors import UserError
from ...journal.journal import write_file
from .. import parameters as shared
from ..output import write_data

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Annotated, Any

    import typer

# What there are schemas of, and how their texts are made.
SCHEMAS: dict[str, Callable[[], str]] = {
    "loop": lambda: _as_text(json_schema()),
    **{
        name: lambda cls=cls: _as_text(results.json_schema(cls))  # type: ignore[misc]
        for name, cls in results.CLASSES.items()
    },
}


def complete_schema(incomplete: str) -> list[str]:
    return [name for name in SCHEMAS if name.startswith(incomplete)]


def schema(
    what: Annotated[
        str,
        typer.Argument(
            help="`loop`, or a result such as `TaskResult`.",
            metavar="[WHAT]",
            autocompletion=complete_schema,
        ),
    ] = "loop",
    output: shared.Output = None,
) -> int:
    """Print the JSON Schema of loop files or of a result."""
    if what not in SCHEMAS:
        raise UserError("unknown-choice", f"no schema of `{what[:80]}`", suggest(what, SCHEMAS, "there are"))
    text = SCHEMAS[what]()
    if output:
        write_file(output, text.encode(), durable=False)
    else:
        write_data(text)
    return 0


def _as_text(made: dict[str, Any]) -> str:
    return json.dumps(made, indent=2, ensure_ascii=False) + "\n"
