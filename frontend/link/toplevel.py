"""Top level of a session: forms are compiled one at a time, each with access to the earlier ones.

Each top-level variable is in a box that all forms share; a form becomes a function that captures the boxes of
its variables. A definition can therefore be replaced while functions use it, and nothing is evaluated twice.
A name that a function uses before its definition is *promised*: a warning at compile time, and a fault if it
is read too early. Must not contain: boxes, values, execution (`runtime/terminal/session.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable
from typing import Any

import attrs

from ...ir.compile_options import DEFAULT_OPTIONS, CompileOptions
from ...ir.constants import Symbol
from ...ir.diagnostics import CompileError, Diagnostic
from ...ir.nodes import Function
from ...ir.records import define, frozen
from ...ir.spans import Source, Span
from ..core.checks import check, parameters_of
from ..core.forms import FormRow
from ..core.library import ROWS
from ..core.nodes import Assign, Binding, Core, Lambda, Let, Literal, Variable, sequence, walk
from ..core.reserved_names import AROUND, CONFIG
from ..core.scope import FunctionMark, Identifier, Scope, identifier_of
from ..core.syntax_rules import SyntaxRules
from ..expand.bodies import fill_unit
from ..expand.expander import run
from ..expand.expansion import MAX_FINDINGS, Abandoned, Context, Environment, LibraryName, root_scope
from ..expand.unit import Unit
from ..lower.program import FunctionNames, lower_input
from ..sexp.datum import Datum, Form
from ..tasks.registry import TaskRegistry
from ..tasks.signature import Signature
from .flow import definition
from .linker import Linker, imported_source

# The variable that holds the last value.
LAST = "it"


@frozen(eq=False)
class Input:
    """A compiled form.

    Attributes:
        functions: its own function first, then required functions that no earlier form has added.
        captures: the variables whose boxes it captures, in order.
        starts: the captured variables that are null before it runs.
        defined: the names that it defines, including macros.
        replaced: the defined names that had a meaning before.
        has_value: whether it is more than a definition; its value is then stored in `it`.
    """

    functions: tuple[Function, ...]
    captures: tuple[Binding, ...]
    starts: tuple[Binding, ...]
    defined: tuple[str, ...]
    replaced: tuple[str, ...]
    has_value: bool
    core: Lambda
    sources: tuple[Source, ...]
    diagnostics: tuple[Diagnostic, ...]


@frozen
class Name:
    """The meaning of a name. kind: variable, macro, form, library, tool or task. doc: one line, or ""."""

    name: str
    kind: str
    usage: str
    doc: str = ""


@define
class _State:
    """The state that a form can change, including the names of the scope."""

    names: dict[Identifier, Any]
    # All variables; and the name and parameters of those that are functions and are never assigned.
    variables: dict[Binding, None]
    functions: dict[Binding, Lambda]
    assigned: set[Binding]
    promised: dict[Identifier, Binding]
    modules: dict[str, Any]
    given: FunctionNames
    count: int = 0

    def copy(self) -> _State:
        return _State(
            dict(self.names),
            dict(self.variables),
            dict(self.functions),
            set(self.assigned),
            dict(self.promised),
            dict(self.modules),
            self.given.copy(),
            self.count,
        )


class Toplevel:
    """The definitions of all forms so far.

    Args:
        declared: the available tools and tasks.
        options: of the compilation.

    While a form is compiled, `expected` has the names that later forms will define, and `valued` the
    variables that earlier forms defined.
    """

    def __init__(self, options: CompileOptions = DEFAULT_OPTIONS) -> None:
        self.declared = TaskRegistry(options.folder, options.declare)
        self.options = options
        self.root = root_scope()
        self.main = FunctionMark()
        self.dynamic = {name: Binding(name, None, self.main) for name in (CONFIG, AROUND)}
        self.last = Binding(LAST, None, self.main)
        self.top = Scope(self.root, function=self.main)
        self.top.names[Symbol(LAST)] = self.last
        self.expected: Collection[str] = ()
        self.valued: Collection[Binding] = ()
        variables: dict[Binding, None] = dict.fromkeys((*self.dynamic.values(), self.last))
        self._state = _State(self.top.names, variables, {}, set(), {}, {}, FunctionNames())

    # --- what the expander asks -------------------------------------------------------------------

    def variable(self, identifier: Identifier, span: Span | None) -> Binding:
        """The variable of a top-level definition: the existing one of this name, or a new one."""
        state = self._state
        known = state.names.get(identifier)
        if not isinstance(known, Binding):
            known = state.promised.pop(identifier, None) or Binding(identifier.name, span, self.main)
        state.variables[known] = None
        known.span = span
        return known

    def promise(self, identifier: Identifier, span: Span | None) -> Binding:
        """The variable for a name that is not defined yet."""
        state = self._state
        known = state.promised.get(identifier)
        if known is None:
            known = state.promised[identifier] = Binding(identifier.name, span, self.main)
            state.variables[known] = None
        return known

    # --- compiling --------------------------------------------------------------------------------

    def compile(
        self, datum: Datum, source: Source, expected: Collection[str] = (), *, keep: bool = True
    ) -> Input:
        """Compile a form and record its definitions; `keep=False` records nothing.

        expected: names that later forms will define, so their use is not an error. Raises
        CompileError and then changes nothing.
        """
        before = self._state
        self._state = before.copy()
        self.top.names = self._state.names
        self.expected = expected
        self.valued = {meaning for meaning in before.names.values() if isinstance(meaning, Binding)}
        is_done = False
        try:
            compiled = self._compile(datum, source)
            is_done = True
            return compiled
        finally:
            if not (is_done and keep):
                if is_done:
                    # Its functions are nevertheless part of the image.
                    before.given, before.count = self._state.given, self._state.count
                self._state = before
                self.top.names = before.names

    def _compile(self, datum: Datum, source: Source) -> Input:
        state = self._state
        before = dict(state.names)
        linker = Linker(self.options, self.declared)
        x = Context(Environment((), imported_source, linker.loop, declared=self.declared))
        x.root, x.main, x.dynamic, x.session = self.root, self.main, self.dynamic, self
        x.modules = state.modules
        x.sources.append(source)
        x.loading.append(source.path)
        unit = Unit(self.top, is_top=True)
        with linker.reading(source.path), contextlib.suppress(Abandoned):
            run(x, fill_unit(x, unit, [datum]))
        entries = [*x.prelude, *unit.entries]
        state.variables.update(dict.fromkeys(unit.frame.late))
        state.variables.update((binding, None) for binding, _ in entries if binding.name)
        self._note_functions(entries)
        has_value = bool(unit.entries) and unit.entries[-1][0] not in unit.definitions
        items = [
            Assign(binding, value, span=value.span) if binding.name else value for binding, value in entries
        ]
        found = self._findings(x, linker, items)
        sources = (*x.sources, *linker.sources.values())
        if any(diagnostic.is_error for diagnostic in found):
            around = self.declared.found
            raise CompileError(found, (*sources, *(around.sources if around is not None else ())))
        shown = _shown(entries, has_value)
        if has_value:
            items[-1] = Assign(self.last, items[-1])
        body = sequence([*items, Literal(None)], None)
        if x.called:
            body = Let(tuple((called.binding, called.function) for called in x.called.values()), body)
        state.count += 1
        main = Lambda((), (), None, body, f"input-{state.count}", span=datum.span)
        functions, captures = lower_input(main, self._named_in(main), definition, state.given)
        defined = tuple(identifier.name for identifier in (*unit.defined, *unit.imported))
        replaced = tuple(
            identifier.name
            for identifier in (*unit.defined, *unit.imported)
            if before.get(identifier) is not None or self.root.names.get(identifier) is not None
        )
        return Input(
            functions,
            captures,
            tuple(unit.frame.late),
            defined,
            replaced,
            has_value,
            shown,
            sources,
            tuple(found),
        )

    def _note_functions(self, entries: list[tuple[Binding, Core]]) -> None:
        """Record the variables that are defined as functions and never assigned."""
        state = self._state
        for _, value in entries:
            state.assigned.update(node.binding for node in walk(value) if isinstance(node, Assign))
        for binding, value in entries:
            state.functions.pop(binding, None)
            if isinstance(value, Lambda):
                state.functions[binding] = _outline(value)
        for binding in state.assigned & state.functions.keys():
            del state.functions[binding]

    def _findings(self, x: Context, linker: Linker, items: Iterable[Core]) -> list[Diagnostic]:
        found = [*x.diagnostics, *linker.diagnostics, *self.declared.wrong]
        found += self.declared.findings()
        body = sequence(items, None)
        has_errors = any(finding.is_error for finding in found)
        known = self._state.functions
        found += check(body, x.locals, x.expected, has_errors=has_errors, functions=known)
        return found[:MAX_FINDINGS]

    def _named_in(self, program: Core) -> list[Binding]:
        """The session variables that a program refers to, in order of reference."""
        variables = self._state.variables
        named = [node.binding for node in walk(program) if isinstance(node, Variable | Assign)]
        return [binding for binding in dict.fromkeys(named) if binding in variables]

    # --- afterwards -------------------------------------------------------------------------------

    def retract(self, bindings: Iterable[Binding]) -> None:
        """Record that these variables did not get a value; their names are only promised."""
        names = self._state.names
        unset = set(bindings)
        if not unset:
            return
        for identifier, meaning in list(names.items()):
            if isinstance(meaning, Binding) and meaning in unset:
                del names[identifier]
                self._state.promised[identifier] = meaning
                self._state.functions.pop(meaning, None)

    def forget_library(self, functions: Collection[str]) -> None:
        """Forget all library functions except these."""
        given = self._state.given.from_library
        for name, function in list(given.items()):
            if function not in functions:
                del given[name]

    def library_function(self, name: str) -> str | None:
        """The name of a library function in the image; None if the image does not contain it."""
        return self._state.given.from_library.get(name)

    # --- names ------------------------------------------------------------------------------------

    @property
    def defined(self) -> dict[str, Binding | SyntaxRules | Signature]:
        """All definitions by name: variables, macros, tasks."""
        return {
            identifier.name: meaning
            for identifier, meaning in self.top.names.items()
            if type(identifier) is Symbol and isinstance(meaning, Binding | SyntaxRules | Signature)
        }

    def outline(self, binding: Binding) -> str | None:
        """The call syntax of a variable that was defined as a function; None for other variables."""
        function = self._state.functions.get(binding)
        if function is None:
            return None
        return f"({' '.join([binding.name, parameters_of(function)]).rstrip()})"

    def find(self, name: str) -> Name | None:
        """The current meaning of a name."""
        meaning = self.top.find(Symbol(name))
        if isinstance(meaning, Binding):
            usage = self.outline(meaning)
            doc = "the last value" if meaning is self.last else ""
            return Name(name, "variable" if usage is None else "function", usage or name, doc)
        if isinstance(meaning, SyntaxRules):
            return Name(name, "macro", f"({name} …)")
        if isinstance(meaning, FormRow):
            return Name(name, "form", meaning.usage, meaning.doc)
        if isinstance(meaning, LibraryName):
            row = next(row for row in ROWS if row.name == name)
            return Name(name, "library", f"({name} {row.operands})".replace(" )", ")"), row.doc)
        signature = meaning if isinstance(meaning, Signature) else self.declared.find(name)
        if signature is None:
            return None
        return Name(name, signature.kind, signature.usage, signature.doc)

    def names(self) -> list[str]:
        """All names with a meaning."""
        return sorted({*self.top.visible_names(), *self.declared.names()})


def names_defined(data: Iterable[Datum]) -> set[str]:
    """The names that forms define at the top level, as far as this is visible without expansion."""
    found = set()
    for datum in data:
        if isinstance(datum, Form) and datum.head in _DEFINING and len(datum.items) > 1:
            target = datum.items[1]
            if isinstance(target, Form) and target.items:
                target = target.items[0]
            identifier = identifier_of(target)
            if identifier is not None:
                found.add(identifier.name)
    return found


_DEFINING = (Symbol("define"), Symbol("bind"))


def _outline(value: Lambda) -> Lambda:
    """A function without its body, for the check of its calls."""
    optionals = tuple((binding, Literal(None)) for binding, _ in value.optionals)
    return attrs.evolve(value, optionals=optionals, body=Literal(None))


def _shown(entries: list[tuple[Binding, Core]], has_value: bool) -> Lambda:
    """The forms in the representation of `--emit expanded`."""
    body: Core = Literal(None)
    if has_value:
        binding, value = entries[-1]
        body = Variable(binding) if binding.name else value
        entries = entries if binding.name else entries[:-1]
    return Lambda((), (), None, Let(tuple(entries), body) if entries else body, "main")
