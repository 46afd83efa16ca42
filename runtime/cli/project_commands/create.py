"""The subcommand `create`."""

from __future__ import annotations

from ....frontend.loop.paradigms import PARADIGMS
from ...authoring import creating

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated

    from .. import typer_parameters as shared
    from ..typer_parameters import Count, Text, Texts, argument, complete_ready_loop, option


def create(
    loops: Annotated[
        Texts,
        argument(
            "[LOOP]…",
            "With --from: the ready loop; with --pin: the loops, by default all of .loops/.",
            complete_ready_loop,
        ),
    ] = None,
    ready: Annotated[
        bool, option("--from", "", "Make a ready loop: --from lint; without a name, list them.")
    ] = False,
    assignments: Annotated[
        Texts, option("--set", "NAME=VALUE", "With --from: set a parameter; may be repeated.")
    ] = None,
    paradigm: Annotated[
        Text,
        option("--paradigm -p", "|".join(PARADIGMS), "Paradigm of the loop; without it, a dialogue asks."),
    ] = None,
    name: Annotated[Text, option("--name", "NAME", "Name of the loop and its file.")] = None,
    describe: Annotated[
        Text, option("--describe", "TEXT", "Let a model write the loop from this description.")
    ] = None,
    description: Annotated[Text, option("--description", "TEXT", "Purpose of the loop.")] = None,
    goal: Annotated[Text, option("--goal", "TEXT", "goal: what should be true.")] = None,
    tool: Annotated[
        Texts,
        option(
            "--tool",
            "ACTION",
            "goal: an action, the first one checks; natural: a permitted action; may be repeated.",
        ),
    ] = None,
    check: Annotated[
        Text, option("--check", "COMMAND", "convergence: the command that prints the metric.")
    ] = None,
    toward: Annotated[Text, option("--toward", "NUMBER", "convergence: the target.")] = None,
    using: Annotated[
        Text, option("--using", "ACTION", "convergence: the action that changes the metric.")
    ] = None,
    tolerance: Annotated[
        Text, option("--tolerance", "NUMBER", "convergence: accepted distance from the target.")
    ] = None,
    direction: Annotated[
        Text, option("--direction", "minimize|maximize", "convergence: which direction is progress.")
    ] = None,
    constraint: Annotated[
        Texts, option("--constraint", "NAME=COMMAND", "invariants: a check and its name; may be repeated.")
    ] = None,
    fix: Annotated[
        Texts,
        option(
            "--fix",
            "NAME=ACTION",
            "invariants: the action that repairs the check of that name; may be repeated.",
        ),
    ] = None,
    step: Annotated[Texts, option("--step", "ACTION", "imperative: a step; may be repeated.")] = None,
    until: Annotated[Text, option("--until", "COMMAND", "imperative: the check that ends the loop.")] = None,
    until_fails: Annotated[
        bool, option("--until-fails", "", "imperative: the check ends the loop when it fails.")
    ] = False,
    state: Annotated[
        Texts,
        option(
            "--state",
            "NAME=[ACTION]",
            "fsm: a state; without an action the loop ends there; may be repeated.",
        ),
    ] = None,
    route: Annotated[
        Texts,
        option(
            "--route",
            "STATE.VERDICT=STATE",
            "fsm: the next state after a verdict, `next` for any verdict; may be repeated.",
        ),
    ] = None,
    initial: Annotated[
        Text, option("--initial", "STATE", "fsm: the initial state, by default the first.")
    ] = None,
    max_iterations: Annotated[Count, option("--max-iterations", "N", "Limit of iterations.", least=1)] = None,
    timeout: Annotated[
        float | None, option("--timeout", "SECONDS", "Time limit of the whole run.", least=0)
    ] = None,
    backoff: Annotated[
        float | None, option("--backoff", "SECONDS", "Delay between two iterations.", least=0)
    ] = None,
    maintain: Annotated[bool, option("--maintain", "", "Start again when the loop is done.")] = False,
    maintain_delay: Annotated[
        float | None,
        option("--maintain-delay", "SECONDS", "With --maintain: delay before a new start.", least=0),
    ] = None,
    scope: Annotated[
        Texts, option("--scope", "PATH", "A path that the loop works on; may be repeated.")
    ] = None,
    model: Annotated[Text, option("--model", "MODEL", "The model to ask.")] = None,
    pin: Annotated[
        bool, option("--pin", "", "Ask a model what loops in `paradigm: natural` mean, and save the answers.")
    ] = False,
    no_pin: Annotated[bool, option("--no-pin", "", "natural: save only the description.")] = False,
    yes: Annotated[bool, option("--yes -y", "", "Save without confirmation.")] = False,
    force: Annotated[bool, option("--force", "", "Replace an existing file; with --pin, ask again.")] = False,
    print: Annotated[bool, option("--print", "", "Only print the YAML.")] = False,
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
