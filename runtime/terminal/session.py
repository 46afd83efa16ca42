"""Session of an interactive console: forms are compiled and run one after another, definitions stay.

Owns the state between forms: the growing image, a box for each variable, the last fault. Must not contain:
access to a terminal (`console`), recording. `spec/repl.md`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from ...frontend.core.nodes import Binding
from ...frontend.core.printer import expanded_text
from ...frontend.link.toplevel import Input, Name, Toplevel, names_defined
from ...frontend.sexp.datum import Atom, Datum
from ...frontend.sexp.reader import read
from ...frontend.source.files import read_source, text_source
from ...ir.compile_options import DEFAULT_OPTIONS, CompileOptions
from ...ir.constants import Symbol
from ...ir.diagnostics import CompileError, nearest
from ...ir.light_records import LightRecord
from ...ir.nodes import Meta, Program
from ...ir.spans import Source
from ...ir.text import print_program
from ...vm.code import linking
from ...vm.code.disassembly import disassemble_functions
from ...vm.machine.control import is_library
from ...vm.machine.machine import Done, Effect, Machine, OutOfFuel
from ...vm.tiered import start
from ...vm.values.faults import Fault
from ...vm.values.text_form import written
from ...vm.values.values import Box, DynamicBox, FunctionValue, Value, to_host
from ..effects.world import World
from ..execution.observer import Display
from ..execution.unrecorded import Unrecorded
from ..host import processes
from ..host.effect_context import Context, Interrupt, Interrupted, WorldLike
from ..host.errors import UserError
from ..journal.outcome import Outcome

# Number of functions at which unreachable functions are removed.
SWEEP_AT = 256


class Answer(LightRecord):
    """Result of a form.

    Args:
        input: the compiled form; None if it did not compile.
        value: its value as text in the language; None for a form without a value.
        error: the errors of the compiler.
        fault: the fault that ended it.
        is_interrupted: whether the user interrupted it.
    """

    input: Input | None = None
    value: str | None = None
    error: CompileError | None = None
    fault: Fault | None = None
    is_interrupted: bool = False

    @property
    def is_good(self) -> bool:
        return self.error is None and self.fault is None and not self.is_interrupted


class Session:
    """The definitions of a session, and the world in which its forms run.

    Args:
        world: performs effects; by default the real world.
        display: observes notes and effects.
        options: options of the compiler.
        fuel: tick limit of a form; None for no limit.
        longest: maximum number of characters of a shown value; None for no limit.
        tier: execution mode of programs.
    """

    def __init__(
        self,
        world: WorldLike | None = None,
        display: Display | None = None,
        options: CompileOptions = DEFAULT_OPTIONS,
        *,
        fuel: int | None = None,
        longest: int | None = None,
        tier: str = "auto",
    ) -> None:
        self._tier = tier
        self._world: WorldLike = world or World()
        self._display = display or Display()
        self._options = options
        self._fuel = fuel
        self._longest = longest
        self._texts = 0
        self._effects = 0
        self.reset()

    def reset(self) -> None:
        """Remove all definitions."""
        self.toplevel = Toplevel(self._options)
        self._linker = linking.Linker("session")
        self._boxes: dict[Binding, Box] = {
            **{binding: DynamicBox(None) for binding in self.toplevel.dynamic.values()},
            self.toplevel.last: Box(None),
        }
        self._sweep_at = SWEEP_AT
        self._last_functions: tuple[str, ...] = ()
        self.fault: Fault | None = None
        self.sources: tuple[Source, ...] = ()

    def close(self) -> None:
        self._world.close()

    # --- evaluating -------------------------------------------------------------------------------

    def source(self, text: str) -> Source:
        """The source of an input text."""
        self._texts += 1
        return text_source(text, f"<input {self._texts}>")

    def run(self, source: Source, interrupt: Interrupt) -> Iterator[Answer]:
        """Evaluate the forms of a text in order, up to the first one that fails.

        Functions may use names that later forms of the same text define, without a warning.
        """
        data, found = read(source)
        if found:
            answer = Answer()
            answer.error = CompileError(found, [source])
            if any(finding.is_error for finding in found):
                yield answer
                return
        names = [names_defined([datum]) for datum in data]
        later = Counter(name for defined in names for name in defined)
        for datum, defined in zip(data, names, strict=True):
            later -= Counter(defined)
            answer = self.evaluate(datum, source, interrupt, later.keys())
            yield answer
            if not answer.is_good:
                return

    def load(self, path: str, interrupt: Interrupt) -> Iterator[Answer]:
        """Evaluate the forms of a file. Raises CompileError if it cannot be read."""
        return self.run(read_source(path), interrupt)

    def evaluate(
        self, datum: Datum, source: Source, interrupt: Interrupt, expected: Collection[str] = ()
    ) -> Answer:
        """Compile and run a form. Raises `Exited` if the form ends the session."""
        self._sweep()
        answer = Answer()
        try:
            answer.input = self._compile(datum, source, expected)
            self._run(answer.input, answer, interrupt)
        except CompileError as error:
            answer.error = error
        except (Interrupted, KeyboardInterrupt):
            self._display.effect_cut()
            answer.is_interrupted = True
        return answer

    def _run(self, compiled: Input, answer: Answer, interrupt: Interrupt) -> None:
        for binding in compiled.starts:
            self._box(binding).value = None
        boxes = [self._box(binding) for binding in compiled.captures]
        function = self._linker.function(compiled.functions[0].name, boxes)
        try:
            stop = self._drive(start(self._linker.image, function, tier=self._tier), interrupt)
        finally:
            unset = [binding for binding in compiled.captures if not _is_set(self._boxes[binding])]
            self.toplevel.retract(unset)
            self._display.end(Outcome(None, None, "flow", "success"))
        if isinstance(stop, Fault):
            answer.fault = self.fault = stop
            self.sources = self._sources_of(stop)
        elif compiled.has_value:
            answer.value = self.show(self._boxes[self.toplevel.last].value)

    def _compile(
        self, datum: Datum, source: Source, expected: Collection[str] = (), *, keep: bool = True
    ) -> Input:
        compiled = self.toplevel.compile(datum, source, expected, keep=keep)
        self._linker.add(compiled.functions, compiled.sources)
        self._last_functions = tuple(function.name for function in compiled.functions)
        return compiled

    def _drive(self, machine: Machine, interrupt: Interrupt) -> Done | Fault:
        world = self._world
        started_at = world.monotonic()

        def elapsed_ms() -> int:
            return round((world.monotonic() - started_at) * 1000)

        def context_of(effect: Effect) -> Context:
            self._effects += 1
            name = f"session-{processes.getpid()}"
            return Context.outside_run(name, self._effects, interrupt, elapsed_ms)

        stop = Unrecorded(machine, world, self._display, interrupt, context_of, self._fuel).run()
        if isinstance(stop, OutOfFuel):
            return Fault(
                "out-of-fuel",
                f"the form did not end within {self._fuel:,} ticks",
                machine.frames(1)[-1].place,
            )
        return stop

    # --- state between forms ----------------------------------------------------------------------

    def _box(self, binding: Binding) -> Box:
        box = self._boxes.get(binding)
        if box is None:
            box = self._boxes[binding] = Box()
            box.value = box
        return box

    def _sweep(self) -> None:
        """Remove unreachable functions when their number has doubled since the last time."""
        linker = self._linker
        if linker.count < self._sweep_at:
            return
        linker.forget(self._boxes.values())
        self.toplevel.forget_library(linker.names)
        self._sweep_at = max(SWEEP_AT, 2 * linker.count)

    def _sources_of(self, fault: Fault) -> tuple[Source, ...]:
        """The sources that contain the positions of a fault."""
        places = [fault.span, *(place for _, _, place in fault.backtrace)]
        paths = {place[0] for place in places if place is not None}
        sources = self._linker.image.sources
        return tuple(
            Source(source.path, source.sha256, source.text) for source in sources if source.path in paths
        )

    # --- inspection -------------------------------------------------------------------------------

    def show(self, value: Value) -> str:
        """A value as text in the language."""
        functions = self._linker.image.functions
        return written(value, self._longest, lambda index: functions[index].name)

    @property
    def last(self) -> object:
        """The last value as plain data, or as text if it has no such form."""
        value = self._boxes[self.toplevel.last].value
        try:
            return to_host(value)
        except (TypeError, ValueError):
            return self.show(value)

    def variables(self) -> Iterator[tuple[str, str]]:
        """The defined names in order, each with its meaning."""
        for name, binding in sorted(self.toplevel.defined.items()):
            if not isinstance(binding, Binding):
                meaning = self.find(name)
                yield name, f"{meaning.kind} {meaning.usage}"
            elif binding is self.toplevel.last and self._boxes[binding].value is None:
                continue
            elif (box := self._boxes.get(binding)) is not None and _is_set(box):
                usage = self.toplevel.outline(binding)
                yield name, usage if usage is not None else self.show(box.value)

    def find(self, name: str) -> Name:
        """The meaning of a name. Raises UserError if it is unbound."""
        found = self.toplevel.find(name)
        if found is None:
            near = nearest(name, self.toplevel.names())
            raise UserError(
                "unbound-name", f"`{name}` is not bound", f"did you mean `{near}`?" if near else None
            )
        return found

    def expanded(self, source: Source) -> str:
        """The expansion of the forms of a text to core. Raises CompileError."""
        out = []
        for datum in self._read(source):
            compiled = self._compile(datum, source, keep=False)
            text = expanded_text(compiled.core)
            out.append(text if compiled.has_value else text.removesuffix("null\n"))
        return "".join(out)

    def ir(self, text: str = "") -> str:
        """IR of the functions of a name, of forms, or (for "") of the last form. Raises CompileError."""
        functions = self._linker.lifted(self._functions(text))
        program = Program("session", "", functions, Meta(scope=()))
        return print_program(program, spans=False).partition("\n\n")[2]

    def bytecode(self, text: str = "") -> str:
        """Bytecode of the same functions as `ir`."""
        return disassemble_functions(self._linker.image, self._functions(text))

    def _functions(self, text: str) -> list[int]:
        """The indices of the functions of a name or of forms, without library functions unless named."""
        linker = self._linker
        name = text.strip()
        binding = self.toplevel.defined.get(name)
        if isinstance(binding, Binding):
            value = self._boxes[binding].value if binding in self._boxes else None
            if not isinstance(value, FunctionValue):
                raise UserError("no-code", f"`{name}` is not a function, so it has no code")
            return self._own(linker.made_by(value.function), value.function)
        if not name:
            return self._own([linker.index(name) for name in self._last_functions if name in linker])
        found: list[int] = []
        source = self.source(text)
        for datum in self._read(source):
            compiled = self._compile(datum, source, keep=False)
            first = linker.index(compiled.functions[0].name)
            made = linker.made_by(first)
            if datum == Atom(Symbol(name)) and len(made) > 1:
                # A function of the library, of a tool or of a task: include its inner functions.
                known = self.toplevel.library_function(name) or name
                names = {index: linker.image.functions[index].name for index in made}
                return [i for i, other in names.items() if other == known or other.startswith(f"{known}/")]
            found += self._own(made)
        return found

    def _own(self, functions: Iterable[int], named: int = -1) -> list[int]:
        """Remove library functions (in files of the library, or generated ones without a position)."""
        image = self._linker.image
        places = {index: image.place(image.functions[index].span) for index in functions}
        return [
            index
            for index, place in places.items()
            if index == named or (place is not None and not is_library(place))
        ]

    def _read(self, source: Source) -> list[Datum]:
        data, found = read(source)
        if any(finding.is_error for finding in found):
            raise CompileError(found, [source])
        return data


def _is_set(box: Box) -> bool:
    return box.value is not box
