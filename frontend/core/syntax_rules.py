"""`syntax-rules`: patterns, matching and templates (R7RS 4.3.2), with all forms of ellipsis.

Patterns and templates are compiled and checked once. Their nesting is limited (`MAX_NESTING`), so matching
and
filling recurse over them, never over the operands of a use.
"""

from __future__ import annotations

from typing import Any

from ...ir.constants import Symbol
from ...ir.diagnostics import Diagnostic
from ...ir.records import frozen
from ...ir.spans import Span
from ..sexp.datum import Atom, Datum, Form, Place
from .scope import Alias, Identifier, Scope, base_symbol, identifier_of, is_same_meaning

MAX_NESTING = 100
ELLIPSIS = Symbol("...")
WILD = Symbol("_")


class BadMacro(Exception):
    """Error in the definition of a macro, with its diagnostic."""

    def __init__(self, message: str, datum: Datum, help: str | None = None) -> None:
        self.diagnostic = Diagnostic("bad-macro", message, datum.span, help=help)


class TooLarge(Exception):
    """An expansion would exceed the limit of created data."""


# --- patterns ---------------------------------------------------------------------------------


@frozen(eq=False)
class Wild:
    pass


@frozen(eq=False)
class Capture:
    """Pattern variable: matches any datum and stores it under a name."""

    name: Identifier


@frozen(eq=False)
class Word:
    """Literal: matches an identifier with the same meaning."""

    name: Identifier


@frozen(eq=False)
class Constant:
    atom: Atom


@frozen(eq=False)
class Row:
    """List pattern: items, then any number of `repeated`, then more items, then a tail."""

    before: tuple[Pattern, ...]
    repeated: Pattern | None
    after: tuple[Pattern, ...]
    tail: Pattern | None


Pattern = Wild | Capture | Word | Constant | Row


# --- templates --------------------------------------------------------------------------------


@frozen(eq=False)
class Fill:
    """Insert the match of a pattern variable."""

    name: Identifier


@frozen(eq=False)
class Insert:
    """Insert an identifier of the macro, renamed for each expansion."""

    name: Identifier


@frozen(eq=False)
class Keep:
    atom: Atom


@frozen(eq=False)
class Many:
    """Repeated template: one copy for each match of the variables `over`. levels: number of ellipses
    after it.
    """

    item: Template
    levels: int
    over: tuple[Identifier, ...]


@frozen(eq=False)
class Group:
    items: tuple[Template | Many, ...]
    tail: Template | None
    bracket: str


Template = Fill | Insert | Keep | Group


@frozen(eq=False)
class Rule:
    pattern: Row
    template: Template
    source: Form


@frozen(eq=False)
class SyntaxRules:
    """A macro: its rules, and the scope in which names of its templates are resolved."""

    name: str
    rules: tuple[Rule, ...]
    scope: Scope
    span: Span | None

    def expand(self, use: Form, scope: Scope, room: int) -> tuple[Datum, int] | None:
        """Expand a use; return the expansion and the number of created data, or None if no rule matches.

        room: maximum number of created data. Raises TooLarge.
        """
        for rule in self.rules:
            found: dict[Identifier, Any] = {}
            if _match_row(rule.pattern, use.items[1:], use.tail, scope, self.scope, found):
                filler = _Filler(found, self.scope, use.place, room)
                return filler.fill(rule.template), filler.made
        return None


def compile_rules(name: str, datum: Form, scope: Scope) -> SyntaxRules:
    """Compile a form `(syntax-rules (literal…) (pattern template)…)` to a macro. Raises BadMacro."""
    items = datum.items[1:]
    ellipsis: Identifier = ELLIPSIS
    if items and (own := identifier_of(items[0])) is not None:
        ellipsis = own
        items = items[1:]
    if not items or not isinstance(items[0], Form):
        raise BadMacro(
            "the first operand of `syntax-rules` must be a list of literals",
            datum,
            "write (syntax-rules () ((_ operand) template)), with () for no literals",
        )
    literals: set[Identifier] = set()
    for word in items[0].items:
        literal = identifier_of(word)
        if literal is None:
            raise BadMacro("a literal must be a symbol", word)
        literals.add(literal)
    rules = []
    for rule in items[1:]:
        if not isinstance(rule, Form) or len(rule.items) != 2 or rule.tail is not None:
            raise BadMacro("a rule must be a pattern and a template", rule, "write ((_ operand…) template)")
        pattern, template = rule.items
        if not isinstance(pattern, Form) or not pattern.items:
            raise BadMacro("a pattern must be a list that begins with `_`", pattern)
        reader = _PatternReader(literals, ellipsis, scope)
        row = reader.row(pattern.items[1:], pattern.tail, 0, 0)
        writer = _TemplateReader(reader.depths, ellipsis)
        rules.append(Rule(row, writer.read(template, 0, 0), pattern))
    if not rules:
        raise BadMacro("`syntax-rules` has no rules", datum, "add ((_ operand…) template)")
    return SyntaxRules(name, tuple(rules), scope, datum.span)


class _PatternReader:
    """Compiler of one pattern. depths: number of ellipses around each variable."""

    def __init__(self, literals: set[Identifier], ellipsis: Identifier, scope: Scope) -> None:
        self.literals = literals
        self.ellipsis = ellipsis
        self.scope = scope
        self.depths: dict[Identifier, int] = {}

    def is_ellipsis(self, datum: Datum) -> bool:
        name = identifier_of(datum)
        return (
            name is not None
            and name not in self.literals
            and (base_symbol(name) is base_symbol(self.ellipsis))
        )

    def read(self, datum: Datum, depth: int, nesting: int) -> Pattern:
        if nesting > MAX_NESTING:
            raise BadMacro(f"the pattern is nested more than {MAX_NESTING} deep", datum)
        if isinstance(datum, Form):
            return self.row(datum.items, datum.tail, depth, nesting)
        name = identifier_of(datum)
        if name is None:
            return Constant(datum)
        if name in self.literals:
            return Word(name)
        if base_symbol(name) is WILD:
            return Wild()
        if self.is_ellipsis(datum):
            raise BadMacro("`...` must follow the datum that it repeats", datum)
        if name in self.depths:
            raise BadMacro(f"`{name.name}` occurs twice in the pattern", datum)
        self.depths[name] = depth
        return Capture(name)

    def row(self, items: tuple[Datum, ...], tail: Datum | None, depth: int, nesting: int) -> Row:
        before: list[Pattern] = []
        after: list[Pattern] = []
        repeated: Pattern | None = None
        index = 0
        while index < len(items):
            is_repeated = index + 1 < len(items) and self.is_ellipsis(items[index + 1])
            if is_repeated and repeated is not None:
                raise BadMacro("a list may contain at most one `...`", items[index + 1])
            item = self.read(items[index], depth + is_repeated, nesting + 1)
            if is_repeated:
                repeated = item
            else:
                (before if repeated is None else after).append(item)
            index += 1 + is_repeated
        rest = self.read(tail, depth, nesting + 1) if tail is not None else None
        return Row(tuple(before), repeated, tuple(after), rest)


class _TemplateReader:
    def __init__(self, depths: dict[Identifier, int], ellipsis: Identifier | None) -> None:
        self.depths = depths
        self.ellipsis = ellipsis

    def is_ellipsis(self, datum: Datum) -> bool:
        name = identifier_of(datum)
        return (
            name is not None
            and self.ellipsis is not None
            and base_symbol(name) is base_symbol(self.ellipsis)
            and name not in self.depths
        )

    def read(self, datum: Datum, depth: int, nesting: int) -> Template:
        if nesting > MAX_NESTING:
            raise BadMacro(f"the template is nested more than {MAX_NESTING} deep", datum)
        if isinstance(datum, Atom):
            name = identifier_of(datum)
            if name is None:
                return Keep(datum)
            if self.is_ellipsis(datum):
                raise BadMacro("`...` must follow the datum that it repeats", datum)
            if name not in self.depths:
                return Insert(name)
            if self.depths[name] > depth:
                raise BadMacro(
                    f"`{name.name}` matches a sequence, but is used without `...`",
                    datum,
                    f"`{name.name}` needs as many `...` as in the pattern",
                )
            return Fill(name)
        items = datum.items
        if len(items) == 2 and datum.tail is None and self.is_ellipsis(items[0]):
            # (... template): `...` in the template has no meaning.
            return _TemplateReader(self.depths, None).read(items[1], depth, nesting + 1)
        out: list[Template | Many] = []
        index = 0
        while index < len(items):
            levels = 0
            while index + 1 + levels < len(items) and self.is_ellipsis(items[index + 1 + levels]):
                levels += 1
            item = self.read(items[index], depth + levels, nesting + 1)
            if levels:
                names = _names(item)
                over = tuple(name for name in names if self.depths[name] > depth)
                if not over or max(self.depths[name] for name in over) < depth + levels:
                    raise BadMacro("`...` follows a template without a repeated variable", items[index])
                out.append(Many(item, levels, over))
            else:
                out.append(item)
            index += 1 + levels
        tail = self.read(datum.tail, depth, nesting + 1) if datum.tail is not None else None
        return Group(tuple(out), tail, datum.bracket)


def _names(template: Template | Many) -> list[Identifier]:
    """Return the pattern variables of a template."""
    found: dict[Identifier, None] = {}
    todo: list[Template | Many] = [template]
    while todo:
        part = todo.pop()
        if isinstance(part, Fill):
            found[part.name] = None
        elif isinstance(part, Many):
            todo.append(part.item)
        elif isinstance(part, Group):
            todo.extend(part.items)
            if part.tail is not None:
                todo.append(part.tail)
    return list(found)


# --- matching ---------------------------------------------------------------------------------


def _match(pattern: Pattern, datum: Datum, scope: Scope, home: Scope, found: dict[Identifier, Any]) -> bool:
    if isinstance(pattern, Capture):
        found[pattern.name] = datum
        return True
    if isinstance(pattern, Wild):
        return True
    if isinstance(pattern, Row):
        if not isinstance(datum, Form):
            return False
        return _match_row(pattern, datum.items, datum.tail, scope, home, found)
    if isinstance(pattern, Word):
        name = identifier_of(datum)
        return name is not None and is_same_meaning(name, scope, pattern.name, home)
    return isinstance(datum, Atom) and datum == pattern.atom


def _match_row(
    row: Row,
    items: tuple[Datum, ...],
    tail: Datum | None,
    scope: Scope,
    home: Scope,
    found: dict[Identifier, Any],
) -> bool:
    first, last = len(row.before), len(row.after)
    count = len(items)
    if count < first + last:
        return False
    if row.repeated is None and row.tail is None and (count != first + last or tail is not None):
        return False
    if row.repeated is not None and row.tail is None and tail is not None:
        return False
    for pattern, item in zip(row.before, items, strict=False):
        if not _match(pattern, item, scope, home, found):
            return False
    if row.repeated is None:
        if row.tail is None:
            return True
        rest = items[first:]
        if not rest:
            return _match(row.tail, tail if tail is not None else Form(()), scope, home, found)
        place = rest[0].place
        return _match(row.tail, Form(rest, place, "(", tail), scope, home, found)
    middle = items[first : count - last]
    if isinstance(row.repeated, Capture):
        found[row.repeated.name] = list(middle)
    else:
        rows: dict[Identifier, list[Any]] = {name: [] for name in _captures(row.repeated)}
        for item in middle:
            one: dict[Identifier, Any] = {}
            if not _match(row.repeated, item, scope, home, one):
                return False
            for name, values in rows.items():
                values.append(one[name])
        found.update(rows)
    for pattern, item in zip(row.after, items[count - last :], strict=True):
        if not _match(pattern, item, scope, home, found):
            return False
    if row.tail is None:
        return True
    return _match(row.tail, tail if tail is not None else Form(()), scope, home, found)


def _captures(pattern: Pattern) -> list[Identifier]:
    found: list[Identifier] = []
    todo = [pattern]
    while todo:
        part = todo.pop()
        if isinstance(part, Capture):
            found.append(part.name)
        elif isinstance(part, Row):
            todo += [*part.before, *part.after]
            todo += [rest for rest in (part.repeated, part.tail) if rest is not None]
    return found


# --- filling ----------------------------------------------------------------------------------


class _Filler:
    """State of one expansion; it uses one alias for each name."""

    def __init__(self, found: dict[Identifier, Any], home: Scope, place: Place, room: int) -> None:
        self.found = found
        self.home = home
        self.place = place
        self.room = room
        self.made = 0
        self.aliases: dict[Symbol, Alias] = {}

    def fill(self, template: Template) -> Datum:
        if self.made > self.room:
            raise TooLarge
        if isinstance(template, Fill):
            datum: Datum = self.found[template.name]
            return datum
        self.made += 1
        if isinstance(template, Insert):
            alias = self.aliases.get(template.name)
            if alias is None:
                alias = self.aliases[template.name] = Alias(template.name, self.home, self.aliases)
            return Atom(alias, self.place)
        if isinstance(template, Keep):
            return Atom(template.atom.value, self.place)
        items: list[Datum] = []
        for item in template.items:
            if isinstance(item, Many):
                self._repeat(item, item.levels, items)
            else:
                items.append(self.fill(item))
        tail = self.fill(template.tail) if template.tail is not None else None
        if not items:
            return tail if tail is not None else Form((), self.place, template.bracket)
        return Form(tuple(items), self.place, template.bracket, tail)

    def _repeat(self, many: Many, levels: int, out: list[Datum]) -> None:
        if levels == 0:
            out.append(self.fill(many.item))
            return
        outer = self.found
        columns = {name: outer[name] for name in many.over if isinstance(outer[name], list)}
        if len(columns) == 1 and levels == 1 and isinstance(many.item, Fill):
            out.extend(columns[many.item.name])
            # A copied reference costs little compared to new data.
            self.made += len(columns[many.item.name]) >> 4
            return
        lengths = {len(column) for column in columns.values()}
        if len(lengths) > 1:
            raise UnevenRepeat(sorted(name.name for name in columns))
        for index in range(lengths.pop() if lengths else 0):
            self.found = {**outer, **{name: column[index] for name, column in columns.items()}}
            self._repeat(many, levels - 1, out)
        self.found = outer


class UnevenRepeat(Exception):
    """Pattern variables that are repeated together matched sequences of different lengths."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
