"""The subcommand `compile`."""

from __future__ import annotations

from ...host.errors import EXIT_OK
from ...project import emit_products
from ...project.options import OVERRIDES, values
from ..output import warn, write_data

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated

    from .. import typer_parameters as shared
    from ..typer_parameters import Text, option


def compile_(
    loop: shared.Loop,
    emit: Annotated[Text, option("--emit", "ir|bytecode|fsm|expanded", "Form to print (default ir).")] = None,
    output: Annotated[
        Text,
        option(
            "--output -o", "FILE", "Write a file instead: .yaml (the FSM), .llb (an image) or .ir (text)."
        ),
    ] = None,
    no_sources: Annotated[bool, option("--no-sources", "", "Leave the source text out of an image.")] = False,
    max_iterations: shared.MaxIterations = None,
    no_llm: shared.NoLlm = False,
    llm_model: shared.LlmModel = None,
    context: shared.Context = None,
    arguments: shared.Arguments = None,
    declare: shared.Declare = None,
    max_expansions: shared.MaxExpansions = None,
    max_nesting: shared.MaxNesting = None,
) -> int:
    """Compile a loop."""
    given = locals()

    overrides = values(loop, {name: given[name] for name in OVERRIDES})
    text = emit_products.compile_to(overrides, emit, output, not no_sources, warn)
    if text is not None:
        write_data(text)
    return EXIT_OK
