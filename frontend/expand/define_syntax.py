"""The forms `define-syntax` and `syntax-rules`: definitions of macros."""

from __future__ import annotations

from ..core.forms import Steps, form
from ..core.scope import Identifier, Scope, identifier_of
from ..core.syntax_rules import BadMacro, SyntaxRules, compile_rules
from ..sexp.datum import Datum, Form
from .expansion import Context

USAGE = "(define-syntax name (syntax-rules (literal…) (pattern template)…))"


def define_macro(x: Context, datum: Form, scope: Scope) -> Identifier | None:
    """Define a macro in a scope; return its name, None where the definition is wrong."""
    target = datum.items[1]
    identifier = x.may_bind(target)
    if identifier is None:
        return None
    rules = _rules(x, datum.items[2], identifier.name, scope)
    if rules is None:
        # A macro without rules, so that its uses are not reported as unbound names.
        rules = SyntaxRules(identifier.name, (), scope, target.span)
    scope.names[identifier] = rules
    return identifier


def _rules(x: Context, datum: Datum, name: str, scope: Scope) -> SyntaxRules | None:
    if isinstance(datum, Form) and datum.items:
        head = identifier_of(datum.items[0])
        if head is not None and head.name == "syntax-rules":
            try:
                return compile_rules(name, datum, scope)
            except BadMacro as bad:
                x.diagnostics.append(bad.diagnostic)
                return None
    elif (other := identifier_of(datum)) is not None:
        meaning = scope.find(other)
        if isinstance(meaning, SyntaxRules):
            return meaning
    x.error("bad-macro", f"`{name}` has no rules", datum.span, help=f"write {USAGE}")
    return None


@form("define-syntax", USAGE, "Define a macro by rules.", 2, 2)
def expand_define_syntax(x: Context, datum: Form, scope: Scope) -> Steps:
    message = "`define-syntax` is allowed only at the top of a file or body"
    return x.refuse_place("misplaced-definition", message, datum, "move it out of the expression")


@form("syntax-rules", USAGE, "The rules of a macro.")
def expand_syntax_rules(x: Context, datum: Form, scope: Scope) -> Steps:
    message = "`syntax-rules` is allowed only in `define-syntax`"
    return x.refuse_place("misplaced-definition", message, datum, f"write {USAGE}")
