"""Printer of core, for `--emit expanded`: the expanded program in the language's own syntax.

Every variable has a unique name (`x`, then `x.2`), so no name hides another. Machine primitives are written
`op:add`, effects and notes as `stdlib/` writes them. The layout is that of `llc fmt` (`sexp/formatter.py`).
"""

from __future__ import annotations

from typing import Any, assert_never

from ...ir.constants import Symbol
from ..sexp.datum import Atom, Datum, Form
from ..sexp.formatter import lay_out
from ..sexp.printer import show
from . import nodes as core
from .library import LIBRARY
from .reserved_names import FORM_NAMES


def expanded_text(program: core.Lambda) -> str:
    """A program's core, one form of the program after the other."""
    printer = _Printer()
    body: core.Core = program.body
    printer.read(body)
    forms: list[Datum] = []
    if program.parameters:
        names = [printer.name(binding) for binding in program.parameters]
        forms.append(_form("parameters", *names))
    # The program's own definitions are shown as such.
    while isinstance(body, core.Let | core.Letrec) and body.span is None:
        for binding, value in body.bindings:
            written = printer.done[value]
            forms.append(_form("define", printer.name(binding), written) if binding.name else written)
        body = body.body
    items = body.items if isinstance(body, core.Sequence) else (body,)
    forms += [printer.done[item] for item in items]
    return lay_out("\n".join(map(show, forms)))


def _form(head: str, *items: Datum) -> Form:
    return Form((Atom(Symbol(head)), *items))


class _Printer:
    """Core to data, inner nodes first."""

    def __init__(self) -> None:
        self.names: dict[core.Binding, Atom] = {}
        self.taken: dict[str, int] = {}
        self.done: dict[core.Core, Datum] = {}

    def name(self, binding: core.Binding) -> Atom:
        atom = self.names.get(binding)
        if atom is None:
            base = binding.name or "_"
            count = self.taken.get(base, 1 if base in LIBRARY or base in FORM_NAMES else 0) + 1
            self.taken[base] = count
            text = base if count == 1 or base == "_" else f"{base}.{count}"
            atom = self.names[binding] = Atom(Symbol(text))
        return atom

    def read(self, program: core.Core) -> Datum:
        nodes = list(core.walk(program))
        for node in nodes:
            # Names are given in the order the program binds them.
            self._name_all(node)
        for node in reversed(nodes):
            self.done[node] = self._datum(node)
        return self.done[program]

    def _name_all(self, node: core.Core) -> None:
        match node:
            case core.Lambda(parameters=parameters, optionals=optionals, rest=rest):
                for binding in (*parameters, *(binding for binding, _ in optionals)):
                    self.name(binding)
                if rest is not None:
                    self.name(rest)
            case core.Let(bindings=bindings) | core.Letrec(bindings=bindings) | core.Loop(bindings=bindings):
                for binding, _ in bindings:
                    self.name(binding)
            case core.Try(binding=binding):
                self.name(binding)
            case _:
                pass

    def _datum(self, node: core.Core) -> Datum:
        done = self.done
        match node:
            case core.Literal(value=value):
                return _literal(value)
            case core.Variable(binding=binding):
                return self.name(binding)
            case core.Library(name=name):
                return Atom(Symbol(name))
            case core.External(part=part):
                return Atom(Symbol(f"loop:{part.name}"))
            case core.Assign(binding=binding, value=value):
                return _form("set!", self.name(binding), done[value])
            case core.If(test=test, then=then, otherwise=otherwise):
                return _form("if", done[test], done[then], done[otherwise])
            case core.Lambda():
                return _form("lambda", self._parameters(node), *self._body(node.body))
            case core.Let(bindings=bindings, body=body):
                return _form("let*", self._bindings(bindings), *self._body(body))
            case core.Letrec(bindings=bindings, body=body):
                return _form("letrec*", self._bindings(bindings), *self._body(body))
            case core.Loop(bindings=bindings, body=body):
                return _form("loop", self._bindings(bindings), *self._body(body))
            case core.Recur(args=args):
                return _form("recur", *(done[arg] for arg in args))
            case core.Sequence(items=items):
                return _form("begin", *(done[item] for item in items))
            case core.Apply(callee=callee, args=args, spread=spread):
                operands = [done[callee], *(done[arg] for arg in args)]
                if spread is not None:
                    return _form("apply", *operands, done[spread])
                return Form(tuple(operands))
            case core.Operation(op=op, args=args):
                return _form(f"op:{op}", *(done[arg] for arg in args))
            case core.Parallel(callee=callee, items=items):
                return _form("effect:parallel", done[callee], done[items])
            case core.Perform(kind=kind, fields=fields):
                return _form("effect:perform", Atom(Symbol(kind)), *self._fields(fields))
            case core.Note(kind=kind, fields=fields):
                return _form("effect:note", Atom(Symbol(kind)), *self._fields(fields))
            case core.Fail(error=error):
                return _form("error", done[error])
            case core.Try(body=body, binding=binding, handler=handler):
                caught = _form("catch", self.name(binding), *self._body(handler))
                return _form("try", done[body], caught)
            case _:
                assert_never(node)

    def _body(self, body: core.Core) -> list[Datum]:
        items = body.items if isinstance(body, core.Sequence) else (body,)
        return [self.done[item] for item in items]

    def _bindings(self, bindings: tuple[tuple[core.Binding, core.Core], ...]) -> Form:
        return Form(tuple(Form((self.name(binding), self.done[value])) for binding, value in bindings))

    def _fields(self, fields: tuple[tuple[str, core.Core], ...]) -> list[Datum]:
        return [_form(name, self.done[value]) for name, value in fields]

    def _parameters(self, function: core.Lambda) -> Form:
        items: list[Datum] = [self.name(binding) for binding in function.parameters]
        if function.optionals:
            items.append(Atom(Symbol("&optional")))
            items += [
                Form((self.name(binding), self.done[default])) for binding, default in function.optionals
            ]
        if function.rest is not None:
            items += [Atom(Symbol("&rest")), self.name(function.rest)]
        return Form(tuple(items))


def _literal(value: Any) -> Datum:
    """A constant as it is written: lists and symbols quoted."""
    if isinstance(value, dict):
        # Occurs only in definitions of tools and tasks, which are not deep.
        return _form("dict", *(Form((Atom(key), _literal(item))) for key, item in value.items()))
    if isinstance(value, tuple):
        if any(isinstance(item, dict) for item in value):
            return _form("list", *map(_literal, value))
        return _form("quote", _data(value)) if value else Form(())
    if isinstance(value, Symbol):
        return _form("quote", Atom(value))
    return Atom(value)


def _data(value: tuple[Any, ...]) -> Datum:
    """A list's data; lists may be deep."""
    done: list[list[Datum]] = [[]]
    todo: list[tuple[Any, bool]] = [(value, False)]
    while todo:
        item, is_read = todo.pop()
        if not isinstance(item, tuple):
            done[-1].append(Atom(item))
        elif is_read:
            items = done.pop()
            done[-1].append(Form(tuple(items)))
        else:
            todo.append((item, True))
            todo.extend((inner, False) for inner in reversed(item))
            done.append([])
    return done[0][0]
