"""The expander: data to core, one form at a time.

Walks the data once, without recursion, with the scope at hand: macros are expanded, forms are turned
into core by their handlers (`forms`), names into bindings. Finds what is wrong and goes on; what is
wrong stands as a null in the core, which nobody runs. Whether calls fit their callees and whether
code is reached is `resolve`'s business.
"""

from __future__ import annotations

from collections.abc import Callable
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from ...ir.diagnostics import Diagnostic, nearest
from ...ir.records import frozen
from ...ir.spans import Source, Span
from ...ir.symbols import Symbol
from ..core.checks import Expected
from ..core.forms import FORMS, INTERNAL, FormRow, Steps, count_words
from ..core.library import LIBRARY, OPERATIONS, PRIVATE, Spread
from ..core.nodes import Apply, Binding, Core, Library, Literal, Variable
from ..core.scope import Alias, FunctionMark, Identifier, Scope, base_symbol, identifier_of
from ..core.syntax_rules import SyntaxRules, TooLarge, UnevenRepeat
from ..sexp.datum import Atom, Datum, Form
from ..sexp.printer import show
from ..sexp.reader import MAX_DEPTH
from ..tasks.registry import Declared
from ..tasks.signature import Signature
from . import task_calls
from .foreign_names import explain

if TYPE_CHECKING:
    from ..core.parts import LoopPart, Request
    from ..link.toplevel import Toplevel
    from .bodies import Unit

# After so many findings nobody reads on, and a hostile file could make millions.
MAX_FINDINGS = 100
MAX_SUGGESTIONS = 20


@frozen
class Limits:
    """What bounds expansion, so that macros that go on for ever end in a diagnostic.

    expansions: uses of macros. data: data their templates made. depth: handlers at work inside one another,
    two or three for a form. nesting: brackets inside one another, in a text.
    """

    expansions: int = 250_000
    data: int = 2_000_000
    depth: int = 100_000
    nesting: int = MAX_DEPTH

    @classmethod
    def of(cls, expansions: int | None = None, nesting: int | None = None) -> Limits:
        """The limits that belong to so many expansions and so much nesting; None is the default."""
        expansions, nesting = expansions or cls().expansions, nesting or MAX_DEPTH
        return cls(expansions, 8 * expansions, 100 * max(nesting, MAX_DEPTH), nesting)


@frozen
class Environment:
    """What surrounds a program.

    parameters: variables given from outside, in the order of the program's parameters.
    load: the source an `import` names, given the path as written and the importing file's path;
    CompileError where it cannot be read. None: nothing can be imported.
    run_loop: the loop that a `run-loop` of that file means; its findings go elsewhere. None: none can be run.
    declared: the tools and tasks around it; None: those that are built in.
    """

    parameters: tuple[str, ...] = ()
    load: Callable[[str, str], Source] | None = None
    run_loop: Callable[[Request, str], LoopPart | None] | None = None
    limits: Limits = Limits()
    declared: Declared | None = None


class Abandoned(Exception):
    """A limit was reached; the finding is recorded and nothing more is expanded."""


@frozen(eq=False)
class LibraryName:
    """What a name of the library means."""

    name: str


class DynamicName:
    """What `*loop-config*` means: a variable of the whole program."""


CONFIG = "*loop-config*"
# Words that mean something inside a form only; bound to something else, the form would be misread.
WORDS = frozenset({"catch", "finally", "unquote", "unquote-splicing", "&optional", "&rest"})


def root_scope() -> Scope:
    """What names mean around every program."""
    root = Scope(None)
    for name in LIBRARY:
        if name not in PRIVATE:
            root.names[Symbol(name)] = LibraryName(name)
    for row in FORMS.values():
        root.names[Symbol(row.name)] = row
    root.names[Symbol(CONFIG)] = DynamicName()
    return root


class Expander:
    """One run over one program."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.limits = environment.limits
        self.diagnostics: list[Diagnostic] = []
        self.sources: list[Source] = []
        self.root = root_scope()
        self.inner = Scope(self.root)
        self.inner.names.update({Symbol(row.name): row for row in INTERNAL.values()})
        self.inner.names.update({Symbol(name): LibraryName(name) for name in OPERATIONS})
        self.main = FunctionMark()
        # Local variables, for what is to be said of those never used.
        self.locals: list[Binding] = []
        # Where a loop wants a function of so many arguments.
        self.expected: list[Expected] = []
        # Variables of bodies under way that have no value yet, with the body.
        self.pending: dict[Binding, Unit] = {}
        self.modules: dict[str, Any] = {}
        self.loading: list[str] = []
        self.prelude: list[tuple[Binding, Core]] = []
        self.config: Binding | None = None
        # The tools and tasks there are, and those that the program calls.
        self.declared = environment.declared or Declared()
        self.called: dict[str, task_calls.Called] = {}
        # Tasks that the program defines itself, in all its files.
        self.tasks: dict[str, Signature] = {}
        self.expansions = 0
        self.made = 0
        self.suggestions = 0
        # Where the form under way stands.
        self.place: Span | None = None
        # What a session has defined so far, where the program is one form of it.
        self.session: Toplevel | None = None

    # --- the trampoline -------------------------------------------------------------------------

    def run(self, steps: Steps) -> Core:
        """The core a handler comes to, with all it asks for expanded on a stack of our own."""
        stack: list[Any] = [steps]
        value: Any = None
        limit = self.limits.depth
        while stack:
            try:
                request = stack[-1].send(value)
            except StopIteration as stop:
                stack.pop()
                value = stop.value
                continue
            if type(request) is tuple:
                datum, scope = request
                if type(datum) is Atom:
                    value = self.atom(datum, scope)
                    continue
                request = self.form(datum, scope)
            if type(request) is not GeneratorType:
                value = request
                continue
            if len(stack) >= limit:
                self.error(
                    "nesting-too-deep",
                    "forms stand too deep inside one another",
                    self.place,
                    help="if a macro made them, it may use itself without end",
                )
                raise Abandoned
            stack.append(request)
            value = None
        result: Core = value
        return result

    # --- data -----------------------------------------------------------------------------------

    def atom(self, datum: Atom, scope: Scope) -> Core:
        identifier = identifier_of(datum)
        if identifier is None:
            return Literal(datum.value, span=datum.span)
        return self.reference(identifier, datum.span, scope)

    def form(self, datum: Form, scope: Scope) -> Any:
        """Core, or the steps to it."""
        expanded = self.expand_head(datum, scope)
        if isinstance(expanded, Atom):
            return self.atom(expanded, scope)
        datum = expanded
        self.place = datum.span
        if not datum.items:
            return Literal((), span=datum.span)
        meaning = self.meaning(datum, scope)
        if type(meaning) is FormRow:
            if not self.has_operands(datum, meaning):
                return Literal(None)
            return meaning.handler(self, datum, scope)
        if type(meaning) is LibraryName and type(LIBRARY.get(meaning.name)) is Spread:
            return self.spread(datum, scope)
        if (meaning is None or type(meaning) is Signature) and (head := identifier_of(datum.items[0])):
            signature = task_calls.find(self, head, scope)
            if signature is not None:
                return task_calls.expand_call(self, datum, scope, signature)
            if self.is_like_form(head.name):
                # Misspelt, or of some other language: what stands in it would only be more of the same.
                self.unbound(head, datum.items[0].span, scope)
                return Literal(None)
            is_expected = self.session is not None and head.name in self.session.expected
            if not is_expected and task_calls.is_like_call(self, datum, scope):
                return task_calls.refuse_unknown(self, datum, scope)
        return self.application(datum, scope)

    def meaning(self, datum: Form, scope: Scope) -> Any:
        """What the head of a form means, None if it is no identifier or unbound."""
        identifier = identifier_of(datum.items[0]) if datum.items else None
        return None if identifier is None else scope.find(identifier)

    def expand_head(self, datum: Datum, scope: Scope) -> Datum:
        """A datum with uses of macros at its head expanded until none is left there."""
        while type(datum) is Form and datum.items:
            identifier = identifier_of(datum.items[0])
            if identifier is None:
                break
            macro = scope.find(identifier)
            if type(macro) is not SyntaxRules:
                break
            datum = self.use(macro, datum, scope)
        return datum

    def use(self, macro: SyntaxRules, datum: Form, scope: Scope) -> Datum:
        """One step of a macro."""
        self.expansions += 1
        if self.expansions > self.limits.expansions:
            self.too_much(macro, datum, f"more than {self.limits.expansions} macro expansions")
        try:
            result = macro.expand(datum, scope, self.limits.data - self.made)
        except TooLarge:
            self.too_much(macro, datum, f"macros made more than {self.limits.data} data")
        except UnevenRepeat as uneven:
            names = " and ".join(f"`{name}`" for name in uneven.names)
            self.error("uneven-repeat", f"{names} in `{macro.name}` match different numbers", datum.span)
            return Atom(None, datum.place)
        if result is None:
            shown = ", ".join(f"`{_show(rule.source, macro.name)}`" for rule in macro.rules[:6])
            self.error(
                "no-matching-rule",
                f"no rule of `{macro.name}` fits this use",
                datum.span,
                help=f"it takes {shown}",
            )
            return Atom(None, datum.place)
        expanded, made = result
        self.made += made
        return expanded

    def too_much(self, macro: SyntaxRules, datum: Form, what: str) -> Any:
        self.error(
            "endless-expansion",
            f"{what}; `{macro.name}` may expand for ever",
            datum.span,
            "the limit was reached here",
            help="a macro that uses itself needs a rule that does not; --max-expansions sets the limit",
        )
        raise Abandoned

    # --- calls ----------------------------------------------------------------------------------

    def application(self, datum: Form, scope: Scope) -> Steps:
        if datum.tail is not None:
            return self.dotted(datum)
        return self._application(datum, scope)

    def _application(self, datum: Form, scope: Scope) -> Steps:
        items: list[Core] = []
        for item in datum.items:
            if type(item) is Atom:
                items.append(self.atom(item, scope))
            else:
                items.append((yield item, scope))
        return Apply(items[0], tuple(items[1:]), span=datum.span)

    def spread(self, datum: Form, scope: Scope) -> Steps:
        """`(apply f a … list)`."""
        call = yield self.application(datum, scope)
        if not isinstance(call, Apply) or len(call.args) < 2:
            if isinstance(call, Apply):
                self.operands(datum, "(apply function argument… list)")
            return Literal(None)
        return Apply(call.args[0], call.args[1:-1], call.args[-1], span=datum.span)

    def dotted(self, datum: Form) -> Any:
        self.error(
            "dotted-list",
            "a dot stands only in parameter lists, patterns and templates",
            datum.tail.span if datum.tail else datum.span,
        )
        return Literal(None)

    # --- names ----------------------------------------------------------------------------------

    def reference(self, identifier: Identifier, span: Span | None, scope: Scope) -> Core:
        """A name as a value."""
        meaning = task_calls.find(self, identifier, scope)
        if type(meaning) is Signature:
            return task_calls.reference(self, meaning, span, scope)
        if type(meaning) is Binding:
            meaning.references += 1
            self.touch(meaning, span, scope)
            return Variable(meaning, span=span)
        if type(meaning) is LibraryName:
            return Library(meaning.name, span=span)
        if type(meaning) is DynamicName:
            return Variable(self.loop_config(scope), span=span)
        if meaning is None:
            if self.session is not None and self.may_promise(identifier, scope):
                return Variable(self._promised(self.session, identifier, span, scope), span=span)
            self.unbound(identifier, span, scope)
        elif type(meaning) is FormRow and meaning.is_bindable:
            from .hybrid_forms import as_function

            return as_function(self, meaning, span)
        else:
            what = "macro" if type(meaning) is SyntaxRules else "form"
            self.error(
                "form-as-value",
                f"`{identifier.name}` is a {what}, not a value",
                span,
                help=f"to pass it on, wrap it: (lambda (x) ({identifier.name} …))",
            )
        return Literal(None)

    def may_promise(self, identifier: Identifier, scope: Scope) -> bool:
        """Whether an unbound name can still be defined before it is asked for: in a session's functions."""
        return (
            self.session is not None and scope.function is not self.main and explain(identifier.name) is None
        )

    def _promised(
        self, session: Toplevel, identifier: Identifier, span: Span | None, scope: Scope
    ) -> Binding:
        """The variable that a name will be once somebody defines it."""
        name = identifier.name
        if name not in session.expected:
            self.warn(
                "unbound-name",
                f"`{name}` is not bound yet",
                span,
                "to be defined before this is called",
                help=self.suggestion(name, scope),
            )
        return session.promise(base_symbol(identifier), span)

    def loop_config(self, scope: Scope) -> Binding:
        """The variable of the whole program that `*loop-config*` is."""
        if self.config is None:
            self.config = Binding(CONFIG, None, self.main)
            self.config.is_assigned = True
        if scope.function is not self.main:
            self.config.is_captured = True
        self.config.references += 1
        return self.config

    def touch(self, binding: Binding, span: Span | None, scope: Scope) -> None:
        """Record a use of a variable: captures, and uses before it has a value."""
        if binding.owner is not scope.function:
            binding.is_captured = True
        unit = self.pending.get(binding)
        if unit is None:
            return
        if binding.owner is scope.function:
            self.error(
                "used-before-definition",
                f"`{binding.name}` is used before it has a value",
                span,
                help="its definition in this body hides any `"
                + binding.name
                + "` around it; put the definition first, or use `set!` to change a variable",
            )
        else:
            unit.first_use.setdefault(binding, unit.index)

    def unbound(self, identifier: Identifier, span: Span | None, scope: Scope) -> None:
        name = identifier.name
        why = None
        for around in scope.chain():
            if around.hidden is not None and (why := around.hidden(name)):
                break
        self.error(
            "unbound-name",
            f"`{name}` is not bound",
            span,
            "a macro puts this name here" if isinstance(identifier, Alias) else "nothing has this name here",
            help=why or explain(name) or self.suggestion(name, scope),
        )

    def suggestion(self, name: str, scope: Scope) -> str | None:
        """What a name may have been meant to be; looked for a bounded number of times, it is slow."""
        self.suggestions += 1
        if self.suggestions > MAX_SUGGESTIONS:
            return None
        found = nearest(name, scope.visible_names())
        return f"did you mean `{found}`?" if found else f"define it before: (define {name} …)"

    def is_like_form(self, name: str) -> bool:
        """Whether an unbound name was most likely meant to be a form's."""
        if explain(name) is not None:
            return True
        return len(name) > 3 and self.suggestions < MAX_SUGGESTIONS and nearest(name, FORMS) is not None

    def may_bind(self, datum: Datum, scope: Scope) -> Identifier | None:
        """The identifier a datum binds, None (and a finding) where it cannot."""
        identifier = identifier_of(datum)
        if identifier is None:
            self.error("bad-binding", "a name must stand here", datum.span, help="names are symbols")
            return None
        why = self.why_reserved(identifier.name)
        if why is not None:
            self.error(
                "cannot-bind",
                f"`{identifier.name}` {why} and cannot be bound",
                datum.span,
                help="choose another name" + (", such as `again`" if identifier.name == "loop" else ""),
            )
            return None
        return identifier

    def why_reserved(self, name: str) -> str | None:
        """Why no variable can have a name; None if one can."""
        row = FORMS.get(name)
        if row is not None and not row.is_bindable:
            return "is the name of a form"
        if name == CONFIG:
            return "is set by loops"
        return "is a word of a form" if name in WORDS else None

    def bind(
        self, identifier: Identifier, span: Span | None, scope: Scope, *, is_local: bool = False
    ) -> Binding:
        """A new variable in a scope; `is_local`: say so if it is never used."""
        if self.session is not None and scope is self.session.top:
            binding = self.session.variable(identifier, span)
        else:
            binding = Binding(identifier.name, span, scope.function)
        scope.names[identifier] = binding
        if is_local and type(identifier) is not Alias and not identifier.name.startswith("_"):
            self.locals.append(binding)
        return binding

    # --- findings -------------------------------------------------------------------------------

    def error(
        self, id: str, message: str, span: Span | None, label: str = "", help: str | None = None
    ) -> Core:
        """Record an error; gives what stands for the form that has it."""
        if len(self.diagnostics) < MAX_FINDINGS:
            self.diagnostics.append(Diagnostic(id, message, span, label, help))
        return Literal(None)

    def warn(
        self, id: str, message: str, span: Span | None, label: str = "", help: str | None = None
    ) -> None:
        if len(self.diagnostics) < MAX_FINDINGS:
            self.diagnostics.append(Diagnostic(id, message, span, label, help, severity="warning"))

    def operands(self, datum: Form, usage: str) -> Core:
        """The form has not the operands it takes."""
        return self.error(
            "bad-form", f"`{_head_name(datum)}` is not used as it can be", datum.span, help=f"write {usage}"
        )

    def has_operands(self, datum: Form, row: FormRow) -> bool:
        if datum.tail is not None:
            self.dotted(datum)
            return False
        count = len(datum.items) - 1
        if row.least <= count and (row.most is None or count <= row.most):
            return True
        expected = count_words(row.least, row.most, "operand")
        self.error(
            "bad-form",
            f"`{row.name}` takes {expected}, not {count}",
            datum.span,
            help=f"write {row.usage}",
        )
        return False


def _head_name(datum: Form) -> str:
    identifier = identifier_of(datum.items[0])
    return identifier.name if identifier is not None else "this"


def _show(pattern: Form, name: str) -> str:
    items = (Atom(Symbol(name)), *pattern.items[1:])
    return show(Form(items, None, "(", pattern.tail), limit=80)
