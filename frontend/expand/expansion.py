"""Expansion context: scopes, variables, limits and diagnostics of one program under expansion.

Form handlers know only the context, not the expander: they bind and look up names, expand macros at the
head of a form, and report errors. They yield the parts to expand (`core/forms.py`).
Must not contain: the expansion of forms (`expander`) and of bodies (`bodies`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Protocol

from ...ir.constants import Symbol
from ...ir.diagnostics import Diagnostic, DiagnosticId, count_words, nearest
from ...ir.records import frozen
from ...ir.spans import Source, Span
from ..core.checks import Expected
from ..core.forms import FORMS, INTERNAL, FormRow, Steps
from ..core.library import LIBRARY, OPERATIONS, PRIVATE
from ..core.nodes import Apply, Binding, Core, Library, Literal, Variable
from ..core.program_parts import LoopPart, Request
from ..core.reserved_names import AROUND, CONFIG, WORDS
from ..core.scope import Alias, FunctionMark, Identifier, Scope, base_symbol, identifier_of
from ..core.syntax_rules import SyntaxRules, TooLarge, UnevenRepeat
from ..sexp.datum import Atom, Datum, Form
from ..sexp.printer import show
from ..sexp.reader import MAX_DEPTH
from ..tasks.registry import TaskRegistry
from ..tasks.signature import Signature
from .foreign_names import explain
from .task_functions import Called, function_of

# Maximum number of diagnostics for one program; a malicious file could produce millions.
MAX_FINDINGS = 100
MAX_SUGGESTIONS = 20
# Forms that users may expect to be functions.
_FUNCTION_LIKE_FORMS = frozenset(("and", "or", "if", "when", "unless"))


@frozen
class Limits:
    """Limits of expansion, which find macros that expand without end.

    Attributes:
        expansions: maximum number of macro expansions.
        data: maximum number of data that templates create.
        depth: maximum nesting of active handlers; a form needs two or three.
        nesting: maximum nesting of brackets in a text.
    """

    expansions: int = 250_000
    data: int = 2_000_000
    depth: int = 100_000
    nesting: int = MAX_DEPTH

    @classmethod
    def of(cls, expansions: int | None = None, nesting: int | None = None) -> Limits:
        """Derive the limits from numbers of expansions and of nesting; None: default."""
        expansions, nesting = expansions or cls().expansions, nesting or MAX_DEPTH
        return cls(expansions, 8 * expansions, 100 * max(nesting, MAX_DEPTH), nesting)


@frozen
class Environment:
    """Surroundings of a program: arguments, imports, loops, tools and tasks.

    Attributes:
        parameters: variables given from outside, in the order of the program's parameters.
        load: returns the source of an `import`, from the path as written and the importing file's path;
            raises
            CompileError. None: imports are errors.
        run_loop: returns the loop of a `run-loop` in a file; it reports errors itself. None: an error.
        declared: declared tools and tasks; None: the built-in ones.
    """

    parameters: tuple[str, ...] = ()
    load: Callable[[str, str], Source] | None = None
    run_loop: Callable[[Request, str], LoopPart | None] | None = None
    limits: Limits = Limits()
    declared: TaskRegistry | None = None


class Abandoned(Exception):
    """Expansion ended because of a limit, which is reported."""


@frozen(eq=False)
class LibraryName:
    """Meaning of a name of the library."""

    name: str


@frozen(eq=False)
class DynamicName:
    """Meaning of `*loop-config*` and `loop:around`: variables of the program with a value for each strand."""

    name: str


class Session(Protocol):
    """Interactive session as seen by the expander: its scope, and the names that its inputs define.

    expected: names that later inputs must define. valued: variables that earlier inputs defined.
    """

    top: Scope
    expected: Collection[str]
    valued: Collection[Binding]

    def variable(self, identifier: Identifier, span: Span | None) -> Binding:
        """Return the variable of a definition at the top level: the existing variable of this name, or a new
        one.
        """

    def promise(self, identifier: Identifier, span: Span | None) -> Binding:
        """Return the variable of a name that is not defined yet."""


def root_scope() -> Scope:
    """Return the outermost scope: the library and the forms."""
    root = Scope(None)
    for name in LIBRARY:
        if name not in PRIVATE:
            root.names[Symbol(name)] = LibraryName(name)
    for row in FORMS.values():
        root.names[Symbol(row.name)] = row
    root.names[Symbol(CONFIG)] = DynamicName(CONFIG)
    return root


class Context:
    """Expansion of one program: its scopes, variables and diagnostics."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.limits = environment.limits
        self.diagnostics: list[Diagnostic] = []
        self.sources: list[Source] = []
        self.root = root_scope()
        self.inner = Scope(self.root)
        self.inner.names.update({Symbol(row.name): row for row in INTERNAL.values()})
        self.inner.names.update({Symbol(name): LibraryName(name) for name in OPERATIONS})
        self.inner.names[Symbol(AROUND)] = DynamicName(AROUND)
        self.main = FunctionMark()
        # Names of the loop forms so far.
        self.loops: set[str] = set()
        # Local variables, for the warning about unused ones.
        self.locals: list[Binding] = []
        # Arities that loops expect of their functions.
        self.expected: list[Expected] = []
        # Variables that have no value yet, with the body that defines them.
        self.pending: set[Binding] = set()
        self.modules: dict[str, Any] = {}
        self.loading: list[str] = []
        self.prelude: list[tuple[Binding, Core]] = []
        # The dynamic variables that the program uses.
        self.dynamic: dict[str, Binding] = {}
        # The declared tools and tasks, and those that the program calls.
        self.declared = environment.declared or TaskRegistry()
        self.called: dict[str, Called] = {}
        # Names that forms of other languages would define: only the form is reported, not the uses of the
        # name.
        self.foreign_definitions: set[str] = set()
        # Tasks that the program defines itself, in all its files.
        self.tasks: dict[str, Signature] = {}
        self.expansions = 0
        self.made = 0
        self.suggestions = 0
        # The span of the current form.
        self.place: Span | None = None
        # Interactive session, if the program is one of its inputs.
        self.session: Session | None = None

    # --- data -----------------------------------------------------------------------------------

    def atom(self, datum: Atom, scope: Scope) -> Core:
        identifier = identifier_of(datum)
        if identifier is None:
            return Literal(datum.value, span=datum.span)
        return self.reference(identifier, datum.span, scope)

    def head_meaning(self, datum: Form, scope: Scope) -> Any:
        """Return the meaning of a form's head; None if it is unbound or not an identifier."""
        identifier = identifier_of(datum.items[0]) if datum.items else None
        return None if identifier is None else scope.find(identifier)

    def expand_head(self, datum: Datum, scope: Scope) -> Datum:
        """Expand all macros at the head of a datum."""
        while type(datum) is Form and datum.items:
            identifier = identifier_of(datum.items[0])
            if identifier is None:
                break
            macro = scope.find(identifier)
            if type(macro) is not SyntaxRules:
                break
            datum = self.expand_once(macro, datum, scope)
        return datum

    def expand_once(self, macro: SyntaxRules, datum: Form, scope: Scope) -> Datum:
        """Expand a macro once."""
        self.expansions += 1
        if self.expansions > self.limits.expansions:
            self.abandon(macro, datum, f"more than {self.limits.expansions} macro expansions")
        try:
            result = macro.expand(datum, scope, self.limits.data - self.made)
        except TooLarge:
            self.abandon(macro, datum, f"macros generated more than {self.limits.data} data")
        except UnevenRepeat as uneven:
            names = " and ".join(f"`{name}`" for name in uneven.names)
            self.error(
                "uneven-repeat", f"{names} in `{macro.name}` match sequences of different lengths", datum.span
            )
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

    def abandon(self, macro: SyntaxRules, datum: Form, what: str) -> Any:
        self.error(
            "endless-expansion",
            f"{what}; `{macro.name}` may expand without end",
            datum.span,
            "the limit was reached here",
            help="a recursive macro needs a rule without recursion; --max-expansions sets the limit",
        )
        raise Abandoned

    # --- calls ----------------------------------------------------------------------------------

    def application(self, datum: Form, scope: Scope) -> Steps:
        if datum.tail is not None:
            return self.refuse_dotted(datum)
        items: list[Core] = []
        for item in datum.items:
            if type(item) is Atom:
                items.append(self.atom(item, scope))
            else:
                items.append((yield item, scope))
        return Apply(items[0], tuple(items[1:]), span=datum.span)

    def refuse_dotted(self, datum: Form) -> Core:
        self.error(
            "dotted-list",
            "a dot is allowed only in parameter lists, patterns and templates",
            datum.tail.span if datum.tail else datum.span,
        )
        return Literal(None)

    # --- names ----------------------------------------------------------------------------------

    def find(self, identifier: Identifier, scope: Scope) -> Any:
        """Return the meaning of a name, including tools and tasks; None if it is unbound.

        A tool takes precedence over a task, even over a task that the program defines.
        """
        meaning = scope.find(identifier)
        if meaning is not None and type(meaning) is not Signature:
            return meaning
        return self.declared.find(base_symbol(identifier).name, meaning)

    def task_function(self, signature: Signature, span: Span | None) -> Variable:
        """Return a tool or task as a value: the function that calls it."""
        called = self.called.get(signature.name)
        if called is None:
            mark = FunctionMark(signature.name)
            called = Called(Binding(signature.name, signature.span, self.main), function_of(signature, mark))
            self.called[signature.name] = called
            source = signature.source
            if source is not None and source not in self.sources:
                self.sources.append(source)
            for other in self.declared.hidden_by(signature):
                self.warn(
                    "tool-before-task",
                    f"`{other.name}` is a tool and a task; calls use the tool",
                    span,
                    help="rename one of them",
                )
        binding = called.binding
        binding.references += 1
        return Variable(binding, span=span)

    def reference(self, identifier: Identifier, span: Span | None, scope: Scope) -> Core:
        """Return the core of a name used as a value."""
        meaning = self.find(identifier, scope)
        if type(meaning) is Signature:
            return self.task_function(meaning, span)
        if type(meaning) is Binding:
            meaning.references += 1
            self.check_use(meaning, span, scope)
            return Variable(meaning, span=span)
        if type(meaning) is LibraryName:
            return Library(meaning.name, span=span)
        if type(meaning) is DynamicName:
            return Variable(self.dynamic_variable(meaning), span=span)
        if meaning is None:
            if self.session is not None and self.may_promise(identifier, scope):
                return Variable(self._promised(self.session, identifier, span, scope), span=span)
            self.report_unbound(identifier, span, scope)
        elif type(meaning) is FormRow and meaning.as_value is not None:
            return meaning.as_value(span)
        else:
            name = identifier.name
            help = f"to pass it on, wrap it: (lambda (x) ({name} …))"
            if name == "do":
                help = "the body follows the test: write (while test body…)"
            elif type(meaning) is FormRow and name not in _FUNCTION_LIKE_FORMS:
                help = f"write {meaning.usage}"
            what = "macro" if type(meaning) is SyntaxRules else "form"
            self.error("form-as-value", f"`{name}` is a {what}, not a value", span, help=help)
        return Literal(None)

    def may_promise(self, identifier: Identifier, scope: Scope) -> bool:
        """Whether an unbound name can still be defined before its use: in the functions of a session."""
        return (
            self.session is not None and scope.function is not self.main and explain(identifier.name) is None
        )

    def _promised(self, session: Session, identifier: Identifier, span: Span | None, scope: Scope) -> Binding:
        """Return the forward-declared variable of a name that is not defined yet."""
        name = identifier.name
        if name not in session.expected:
            self.warn(
                "unbound-name",
                f"`{name}` is not bound yet",
                span,
                "define it before the function is called",
                help=self.suggestion(name, scope),
            )
        return session.promise(base_symbol(identifier), span)

    def dynamic_variable(self, meaning: DynamicName) -> Binding:
        """Return the global variable of a dynamic name."""
        binding = self.dynamic.get(meaning.name)
        if binding is None:
            binding = self.dynamic[meaning.name] = Binding(meaning.name, None, self.main)
            binding.is_assigned = binding.is_dynamic = True
        binding.references += 1
        return binding

    def check_use(self, binding: Binding, span: Span | None, scope: Scope) -> None:
        """Report a use of a variable before it has a value, except in functions, which may be called
        later.
        """
        if binding in self.pending and binding.owner is scope.function:
            self.error(
                "used-before-definition",
                f"`{binding.name}` is used before it has a value",
                span,
                help="its definition in this body hides any `"
                + binding.name
                + "` around it; put the definition first, or use `set!` to change a variable",
            )

    def report_unbound(self, identifier: Identifier, span: Span | None, scope: Scope) -> None:
        name = identifier.name
        if name in self.foreign_definitions:
            return
        why = None
        for around in scope.chain():
            if around.hidden is not None and (why := around.hidden(name)):
                break
        self.error(
            "unbound-name",
            f"`{name}` is not bound",
            span,
            "inserted by a macro" if isinstance(identifier, Alias) else "no definition is visible here",
            help=why or explain(name) or self.suggestion(name, scope),
        )

    def suggestion(self, name: str, scope: Scope) -> str | None:
        """Return help for an unknown name; None after `MAX_SUGGESTIONS` calls, because the search is slow."""
        self.suggestions += 1
        if self.suggestions > MAX_SUGGESTIONS:
            return None
        base, _, field = name.partition(".")
        if base and field and scope.find(Symbol(base)) is not None:
            return (
                f"write (get-field {base} '{field})"
                if "." not in field
                else f'write (get-field {base} "{field}")'
            )
        found = nearest(name, scope.visible_names())
        return f"did you mean `{found}`?" if found else f"define it before: (define {name} …)"

    def is_foreign(self, identifier: Identifier, scope: Scope) -> bool:
        """Whether an unbound name is known from another language, which is reported as such."""
        return scope.find(identifier) is None and explain(identifier.name) is not None

    def is_like_form(self, name: str) -> bool:
        """Whether an unbound name is most likely a misspelt form."""
        if explain(name) is not None:
            return True
        return len(name) > 3 and self.suggestions < MAX_SUGGESTIONS and nearest(name, FORMS) is not None

    def may_bind(self, datum: Datum) -> Identifier | None:
        """Return the identifier that a datum binds; None, with an error, if it cannot be bound."""
        identifier = identifier_of(datum)
        if identifier is None:
            self.error("bad-binding", "a name is expected here", datum.span, help="a name is a symbol")
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
        """Return the reason why no variable can have a name; None if it can."""
        row = FORMS.get(name)
        if row is not None and not row.is_bindable:
            return "is the name of a form"
        if name == CONFIG:
            return "is set by loops"
        return "is a keyword of a form" if name in WORDS else None

    def bind(
        self, identifier: Identifier, span: Span | None, scope: Scope, *, is_local: bool = False
    ) -> Binding:
        """Create a variable in a scope. is_local: whether to warn if it is unused."""
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
        self,
        id: DiagnosticId,
        message: str,
        span: Span | None,
        label: str = "",
        help: str | None = None,
        related: tuple[tuple[Span, str], ...] = (),
    ) -> Core:
        """Record an error; return a placeholder for the form."""
        if len(self.diagnostics) < MAX_FINDINGS:
            self.diagnostics.append(Diagnostic(id, message, span, label, help, related=related))
        return Literal(None)

    def warn(
        self, id: DiagnosticId, message: str, span: Span | None, label: str = "", help: str | None = None
    ) -> None:
        if len(self.diagnostics) < MAX_FINDINGS:
            self.diagnostics.append(Diagnostic(id, message, span, label, help, severity="warning"))

    def refuse_operands(self, datum: Form, usage: str) -> Core:
        """Report wrong operands of a form."""
        return self.error(
            "bad-form", f"wrong operands of `{_head_name(datum)}`", datum.span, help=f"write {usage}"
        )

    def refuse_place(self, id: DiagnosticId, message: str, datum: Form, help: str | None = None) -> Steps:
        """Return steps that report a form at a place where it is not allowed."""
        yield from ()
        return self.error(id, message, datum.span, help=help)

    def has_operands(self, datum: Form, row: FormRow) -> bool:
        if datum.tail is not None:
            self.refuse_dotted(datum)
            return False
        count = len(datum.items) - 1
        if row.least <= count and (row.most is None or count <= row.most):
            return True
        expected = count_words(row.least, row.most, "operand")
        help = f"write {row.usage}"
        names = [identifier.name for item in datum.items[1:] if (identifier := identifier_of(item))]
        if words := [f"`{name}`" for name in names if name in ("then", "else", "elif", "do", "in")]:
            help += f", without {' and '.join(words)}"
        self.error("bad-form", f"`{row.name}` takes {expected}, not {count}", datum.span, help=help)
        return False


def _head_name(datum: Form) -> str:
    identifier = identifier_of(datum.items[0])
    return identifier.name if identifier is not None else "this"


def _show(pattern: Form, name: str) -> str:
    items = (Atom(Symbol(name)), *pattern.items[1:])
    return show(Form(items, None, "(", pattern.tail), limit=80)
