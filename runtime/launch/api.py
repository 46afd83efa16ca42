"""llc from Python: compile a text, run a loop, hold a machine in your own hands.

What the package exports (`llc.compile`, `llc.run`, `llc.Machine`); nothing here that the command
line does not do too. Errors are raised, not printed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..host import files

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ...vm.code.image import Image
    from ...vm.values.faults import Fault
    from ..host.context import WorldLike
    from ..journal.outcome import Outcome


def compile(
    text: str,
    path: str = "<text>",
    *,
    context: Mapping[str, Any] | None = None,
    max_iterations: int | None = None,
    llm: bool | None = None,
    llm_model: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    declare: Sequence[str] = (),
) -> Image:
    """Compile the YAML text of a loop, or the text of a flow, to an image for `Machine`.

    path: the name that stands in diagnostics; a flow's ends in `.sexp`. arguments: variables of a
    flow. declare: tools and tasks that it may call beside those of the project, as `--declare` names
    them. The rest overrides what the loop says, as the options of `llc compile` do. Raises
    CompileError with every diagnostic.
    """
    from ...ir.compile_options import CompileOptions
    from ...vm.code.emit import emit
    from ..host.paths import LOOPS
    from ..project.compilation import compile_text

    options = CompileOptions(
        max_iterations=max_iterations,
        context=_plain_data(context),
        llm_enabled=llm,
        llm_model=llm_model,
        arguments=_plain_data(arguments),
        folder=LOOPS,
        declare=declare,
    )
    return emit(compile_text(text, path, options).program)


def run(
    target: str | files.PathLike[str],
    *,
    script: str | files.PathLike[str] | None = None,
    context: Mapping[str, Any] | None = None,
    max_iterations: int | None = None,
    llm: bool | None = None,
    llm_model: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    declare: Sequence[str] = (),
    budget: Mapping[str, float] | None = None,
) -> Outcome:
    """Run a loop or a flow by name or path in the current folder, silently, and say how it ended.

    script: a scripted world instead of the real one. budget: what the run may spend, by unit, as `--budget`
    says it. Raises CompileError for an invalid loop,
    UserError for what the user can mend (no such loop, scope taken), JournalError where the
    journal cannot be written. A loop that ends badly is no exception: see `Outcome.status`.
    """
    import json

    from ..project import options
    from ..project.load import context_option
    from . import run as running

    values = options.Values(
        options.RUN,
        files.fspath(target),
        quiet=True,
        script=None if script is None else files.fspath(script),
        context=tuple((name, context_option(value)) for name, value in _plain_data(context).items()),
        max_iterations=max_iterations,
        no_llm=llm is False,
        llm_model=llm_model,
        arguments=tuple((name, json.dumps(value)) for name, value in _plain_data(arguments).items()),
        declare=tuple(declare),
        budget=tuple(
            (unit, bound if isinstance(bound, str) else json.dumps(bound))
            for unit, bound in _plain_data(budget).items()
        ),
    )
    return running.outcome(values)


def run_many(jobs: Iterable[str | Mapping[str, Any]], *, at_once: int = 8) -> list[Outcome]:
    """Run many loops or flows in this process, and say how each ended, in the order of `jobs`.

    A job is a loop's name or path, or a map as a line of `llc batch` has it (`loop`, `context`, `args`,
    `scope`, …). at_once: so many of their actions are performed at the same time. Jobs that work on the same
    paths go one after another, and wait for runs elsewhere. Raises CompileError and UserError for jobs that
    cannot be run, before any begins; one that ends badly is no exception: see `Outcome.status`.
    """
    from . import batch_command

    return batch_command.outcomes(jobs, at_once)


class FlowError(Exception):
    """An evaluated flow ended by its own error, `fault`."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        super().__init__(f"{fault.kind}: {fault.message}")


def evaluate(
    source: str,
    bindings: Mapping[str, Any] | None = None,
    world: WorldLike | str | files.PathLike[str] | None = None,
    *,
    fuel: int | None = None,
    limits: Mapping[str, int] | None = None,
    declare: Sequence[str] = (),
) -> Any:
    """The value of a flow given as text, with variables bound to plain data; nothing is recorded.

    world: what performs its effects, by default the real one, or the file of a scripted one, as `script` of
    `run`. fuel: how many ticks it may use. limits: `depth` of calls and `size` of values, as `--max-depth`
    and `--max-size` of `llc run`, and `fuel` too. declare: as for `compile`. Raises CompileError, FlowError
    where it ends by a fault or is out of fuel, what the world raises (`Exited` for `exit`), and TypeError
    for arguments that are not what they should be.
    """
    from ...frontend.source.files import EXPRESSION
    from ..project.limits import Bounds, keeping

    given = Bounds(**{"fuel": fuel, **(limits or {})})
    with keeping():
        given.apply()
        image = compile(source, EXPRESSION, arguments=bindings, declare=declare)
        if world is not None:
            return _evaluate(image, _world(world), given.fuel)
        from ..effects.world import World

        real = World()
        try:
            return _evaluate(image, real, given.fuel)
        finally:
            real.close()


def _world(given: WorldLike | str | files.PathLike[str]) -> WorldLike:
    """What performs effects, or what is told by a file. CompileError where it cannot be read."""
    if isinstance(given, str | files.PathLike):
        from ..effects.script_reader import load_world

        return load_world(files.fspath(given))
    if not hasattr(given, "perform"):
        kind = type(given).__name__
        raise TypeError(f"`world` performs effects, or is the file of a scripted world; {kind} is neither")
    return given


def _evaluate(image: Image, performing: WorldLike, fuel: int) -> Any:
    from ...vm.jit.runtime.tiered import Machine
    from ...vm.machine.machine import Done, Effect
    from ...vm.values.faults import Fault
    from ..host.context import Context, Interrupt

    machine = Machine(image, fuel=fuel)
    interrupt = Interrupt()
    begun = performing.monotonic()
    try:
        stop = machine.resume()
        while isinstance(stop, Effect):
            context = Context(
                run_id="evaluate",
                effect_id=f"evaluate/{stop.seq}",
                loop=None,
                state=None,
                iteration=None,
                elapsed_ms=lambda: round((performing.monotonic() - begun) * 1000),
                interrupt=interrupt,
            )
            stop = machine.resume(performing.perform(stop, context))
            machine.take_notes()
    finally:
        interrupt.close()
    if isinstance(stop, Done):
        return stop.value
    if not isinstance(stop, Fault):
        stop = Fault("out-of-fuel", f"it did not end within {fuel:,} ticks")
    raise FlowError(stop)


def _plain_data(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Variables as plain data. Raises TypeError for values that are not plain data."""
    import json

    if given is not None and not hasattr(given, "items"):
        raise TypeError(f"variables are a map from names to values, not {type(given).__name__}")
    found = {}
    for name, value in (given or {}).items():
        if not isinstance(name, str):
            raise TypeError(f"the name of a variable is a string, not {name!r}")
        try:
            found[name] = json.loads(json.dumps(value))
        except (TypeError, ValueError) as error:
            raise TypeError(f"the variable `{name}` is no plain data: {error}") from None
    return found
