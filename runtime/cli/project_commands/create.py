"""The subcommand `create`."""

from __future__ import annotations

from ....frontend.loop.paradigms import PARADIGMS
from ...authoring import creating
from .. import parameters as shared

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated

    import typer


def create(
    loops: Annotated[
        list[str] | None,
        typer.Argument(
            help="With --from: the ready loop; with --pin: the loops, by default all of .loops/.",
            metavar="[LOOP]…",
            autocompletion=shared.complete_ready_loop,
        ),
    ] = None,
    ready: Annotated[
        bool,
        typer.Option("--from", help="Make a ready loop: --from lint; without a name, list them."),
    ] = False,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="With --from: set a parameter; may be repeated."),
    ] = None,
    paradigm: Annotated[
        str | None,
        typer.Option(
            "--paradigm",
            "-p",
            metavar="|".join(PARADIGMS),
            help="Paradigm of the loop; without it, a dialogue asks.",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Name of the loop and its file.")
    ] = None,
    describe: Annotated[
        str | None,
        typer.Option("--describe", metavar="TEXT", help="Let a model write the loop from this description."),
    ] = None,
    description: Annotated[
        str | None, typer.Option("--description", metavar="TEXT", help="Purpose of the loop.")
    ] = None,
    goal: Annotated[
        str | None, typer.Option("--goal", metavar="TEXT", help="goal: what should be true.")
    ] = None,
    tool: Annotated[
        list[str] | None,
        typer.Option(
            "--tool",
            metavar="ACTION",
            help="goal: an action, the first one checks; natural: a permitted action; may be repeated.",
        ),
    ] = None,
    check: Annotated[
        str | None,
        typer.Option("--check", metavar="COMMAND", help="convergence: the command that prints the metric."),
    ] = None,
    toward: Annotated[
        str | None, typer.Option("--toward", metavar="NUMBER", help="convergence: the target.")
    ] = None,
    using: Annotated[
        str | None,
        typer.Option("--using", metavar="ACTION", help="convergence: the action that changes the metric."),
    ] = None,
    tolerance: Annotated[
        str | None,
        typer.Option("--tolerance", metavar="NUMBER", help="convergence: accepted distance from the target."),
    ] = None,
    direction: Annotated[
        str | None,
        typer.Option(
            "--direction", metavar="minimize|maximize", help="convergence: which direction is progress."
        ),
    ] = None,
    constraint: Annotated[
        list[str] | None,
        typer.Option(
            "--constraint", metavar="NAME=COMMAND", help="invariants: a check and its name; may be repeated."
        ),
    ] = None,
    fix: Annotated[
        list[str] | None,
        typer.Option(
            "--fix",
            metavar="NAME=ACTION",
            help="invariants: the action that repairs the check of that name; may be repeated.",
        ),
    ] = None,
    step: Annotated[
        list[str] | None,
        typer.Option("--step", metavar="ACTION", help="imperative: a step; may be repeated."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="COMMAND", help="imperative: the check that ends the loop."),
    ] = None,
    until_fails: Annotated[
        bool, typer.Option("--until-fails", help="imperative: the check ends the loop when it fails.")
    ] = False,
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            metavar="NAME=[ACTION]",
            help="fsm: a state; without an action the loop ends there; may be repeated.",
        ),
    ] = None,
    route: Annotated[
        list[str] | None,
        typer.Option(
            "--route",
            metavar="STATE.VERDICT=STATE",
            help="fsm: the next state after a verdict, `next` for any verdict; may be repeated.",
        ),
    ] = None,
    initial: Annotated[
        str | None,
        typer.Option("--initial", metavar="STATE", help="fsm: the initial state, by default the first."),
    ] = None,
    max_iterations: Annotated[
        int | None, typer.Option("--max-iterations", metavar="N", min=1, help="Limit of iterations.")
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", metavar="SECONDS", min=0, help="Time limit of the whole run."),
    ] = None,
    backoff: Annotated[
        float | None,
        typer.Option("--backoff", metavar="SECONDS", min=0, help="Delay between two iterations."),
    ] = None,
    maintain: Annotated[bool, typer.Option("--maintain", help="Start again when the loop is done.")] = False,
    maintain_delay: Annotated[
        float | None,
        typer.Option(
            "--maintain-delay", metavar="SECONDS", min=0, help="With --maintain: delay before a new start."
        ),
    ] = None,
    scope: Annotated[
        list[str] | None,
        typer.Option("--scope", metavar="PATH", help="A path that the loop works on; may be repeated."),
    ] = None,
    model: Annotated[str | None, typer.Option("--model", metavar="MODEL", help="The model to ask.")] = None,
    pin: Annotated[
        bool,
        typer.Option(
            "--pin", help="Ask a model what loops in `paradigm: natural` mean, and save the answers."
        ),
    ] = False,
    no_pin: Annotated[bool, typer.Option("--no-pin", help="natural: save only the description.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Save without confirmation.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace an existing file; with --pin, ask again.")
    ] = False,
    print: Annotated[bool, typer.Option("--print", help="Only print the YAML.")] = False,
    json: shared.Json = False,
) -> int:
    """Make a new loop: a ready one, by dialogue, by options, or from a description.

    Examples:
        llc create
        llc create --from
        llc create --from tests --set check='npm test'
        llc create -p goal --goal 'No type errors' --tool 'mypy src/' --tool 'Fix the type errors' --yes
        llc create -p invariants --constraint tests=pytest --fix tests='Make the tests pass' --print
        llc create --describe 'run the tests until they pass, at most 5 times'
        llc create --pin --yes
    """
    return creating.run(locals())
