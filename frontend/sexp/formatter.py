"""Formatter of S-expression text: `llc fmt`; `spec/syntax.md`, Layout.

The author's line breaks are kept. The formatter decides indentation, blanks, closing brackets, and
the breaks of a form that is too wide for its line. Comments keep their places, and tokens are moved,
never rewritten, so the data do not change. Formatting is idempotent.

A text becomes a tree of nodes, which is written with an explicit stack; neither step recurses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...ir.diagnostics import CompileError
from ...ir.python_internals import CollectorRests
from ..source.files import text_source
from . import lexer as lexis
from .lexer import kind_of
from .reader import read

WIDTH = 100
# Limits the growth of deeply nested text.
MAX_INDENT = 200

# Forms whose body is indented by two: the number of operands before the body. The operands before
# it stay in the form's first line, or are indented by four.
BODIES = {
    "lambda": 1,
    "define": 1,
    "define-syntax": 1,
    "defatom": 1,
    "call": 1,
    "syntax-rules": 1,
    "bind": 1,
    "set!": 1,
    "let": 1,
    "let*": 1,
    "letrec": 1,
    "letrec*": 1,
    "when": 1,
    "unless": 1,
    "while": 1,
    "loop": 1,
    "case": 1,
    "do": 2,
    "catch": 1,
    "begin": 0,
    "progn": 0,
    "cond": 0,
    "try": 0,
    "finally": 0,
    "iterative-loop": 0,
    "director-evaluator-loop": 0,
}


def format_source(text: str, path: str = "<text>") -> str:
    """Format a text. CompileError where it cannot be read."""
    with CollectorRests():
        source = text_source(text, path)
        data, findings = read(source)
        if any(finding.is_error for finding in findings):
            raise CompileError(findings, [source])
        result = lay_out(text)
        if read(text_source(result, path))[0] != data:
            raise AssertionError("formatting would have changed what is read")
        return result


def lay_out(text: str) -> str:
    """Format a text that is known to read without errors, however deeply nested."""
    return _write(_parse(text))


class _Leaf:
    """An atom, a dot or a comment. `breaks` counts the line ends before it, `column` its old column."""

    __slots__ = ("breaks", "column", "is_broken", "is_comment", "is_datum", "text", "width")

    def __init__(self, text: str, breaks: int, column: int, is_comment: bool) -> None:
        self.text = text
        self.breaks = breaks
        self.column = column
        self.is_comment = is_comment
        self.is_datum = not is_comment
        # Whether it must end its line.
        self.is_broken = "\n" in text or text.startswith((";", "#!"))
        self.width = len(text)


class _Branch:
    """A bracket and what it holds, or a prefix (`closer` is empty) and its datum."""

    __slots__ = (
        "breaks",
        "closer",
        "column",
        "is_broken",
        "is_comment",
        "is_datum",
        "items",
        "text",
        "width",
    )

    def __init__(self, text: str, breaks: int, column: int) -> None:
        self.text = text
        self.breaks = breaks
        self.column = column
        self.closer = lexis.CLOSERS.get(text, "")
        self.items: list[_Node] = []
        self.is_comment = False
        self.is_datum = text != "#;"
        self.is_broken = False
        self.width = 0

    def finish(self) -> None:
        items = self.items
        self.width = len(self.text) + len(self.closer)
        if items:
            self.width += sum([item.width for item in items]) + len(items) - 1 + self.gap
            self.is_broken = items[0].is_broken
            for item in items[1:]:
                if item.is_broken or item.breaks:
                    self.is_broken = True
                    break

    @property
    def gap(self) -> int:
        """Blanks behind the opening token."""
        first = self.items[0]
        if first.is_comment:
            return 1
        return int(self.text == "," and first.text.startswith("@"))

    def head(self) -> _Node | None:
        return next((item for item in self.items if item.is_datum), None)


_Node = _Leaf | _Branch
_LINE_END = re.compile(r"\r\n?|\n")


def _parse(text: str) -> _Branch:
    """The tree of a text that reads without errors; its root is a branch without brackets."""
    root = _Branch("", 0, 0)
    stack = [root]
    breaks = line_start = end = 0
    for token in lexis.split(text):
        kind = kind_of(token)
        column = end - line_start
        end += len(token)
        if (last := token.rfind("\n")) >= 0:
            line_start = end - len(token) + last + 1
        if kind == "blank":
            breaks += len(_LINE_END.findall(token))
            continue
        if kind == "close":
            stack[-1].finish()
            _end(stack)
        elif kind in ("open", "prefix", "datum-comment"):
            branch = _Branch(token, breaks, column)
            stack[-1].items.append(branch)
            stack.append(branch)
        else:
            is_comment = kind in ("comment", "block-comment")
            token = _LINE_END.sub("\n", token)
            leaf = _Leaf(token.rstrip() if kind == "comment" else token, breaks, column, is_comment)
            stack[-1].items.append(leaf)
            if not is_comment:
                _end(stack, leaf)
        breaks = 0
    return root


def _end(stack: list[_Branch], leaf: _Leaf | None = None) -> None:
    """A datum is complete, the innermost branch or a leaf in it; and so are its prefixes."""
    if leaf is None:
        stack.pop()
    while len(stack) > 1 and not stack[-1].closer:
        stack.pop().finish()


class _Open:
    """A branch that is being written."""

    __slots__ = (
        "align",
        "at",
        "branch",
        "column",
        "count",
        "is_data",
        "is_first_line",
        "is_hung",
        "room",
        "style",
        "tail",
    )

    def __init__(self, branch: _Branch, column: int, tail: int, is_data: bool) -> None:
        self.branch = branch
        self.column = column  # where it begins
        self.tail = tail  # how many closing brackets follow it directly
        self.is_data = is_data
        self.at = 0  # the item to be written next
        self.count = 0  # how many data were written
        self.is_first_line = True
        self.align = -1  # the column of the first operand, if it is in the line of the head
        self.style = _style(branch, is_data)
        self.is_hung = _is_hung(branch)
        self.room: int | None = None  # how many data stay in the first line where the form is spread

    def spread(self) -> None:
        """Break the form, which is too wide and has no breaks of its author's."""
        items = self.branch.items
        if all(isinstance(item, _Leaf) for item in items):
            return  # its lines are filled
        if self.style is None:
            self.room = 1
        elif self.style >= 0:
            self.room = 1 + self.style
        else:
            # A call: its operands under the first, if they all have room there.
            column = self.column + len(self.branch.text) + items[0].width + 1
            widest = max((item.width for item in items[1:]), default=0)
            self.room = 2 if column + widest + self.tail + 1 <= WIDTH else 1

    def indent(self) -> int:
        """The indentation of the next item when it begins a line."""
        return min(self._indent(), MAX_INDENT)

    def _indent(self) -> int:
        branch = self.branch
        inner = self.column + len(branch.text)
        if self.count == 0 or self.style is None:
            return inner
        if self.count <= self.style:
            return self.column + len(branch.text) + 3
        if self.style > 0 or self.align < 0 or self.is_hung:
            return inner + 1
        return self.align


def _is_hung(branch: _Branch) -> bool:
    """Whether the author indented operands by two rather than under the first."""
    count = 0
    for item in branch.items:
        if item.breaks and count > 1:
            return item.column - branch.column == 2
        count += item.is_datum
    return False


def _style(branch: _Branch, is_data: bool) -> int | None:
    """The number of operands before the body: -1 for a call, None for data."""
    if not branch.closer or is_data:
        return None
    head = branch.head()
    if not isinstance(head, _Leaf) or head.text[0] in '"|' or head.is_broken:
        return None
    if re.match(r"[-+.]?[0-9]", head.text):
        return None
    count = BODIES.get(head.text, -1)
    if head.text == "let":
        operands = [item for item in branch.items if item.is_datum]
        if len(operands) > 1 and isinstance(operands[1], _Leaf):
            return 2  # a named let
    return count


class _Writer:
    """Output buffer: pieces of text, and the current column."""

    def __init__(self) -> None:
        self.out: list[str] = []
        self.column = 0

    def put(self, text: str) -> None:
        self.out.append(text)
        at = text.rfind("\n")
        self.column = self.column + len(text) if at < 0 else len(text) - at - 1

    def new_line(self, indent: int, is_spaced: bool) -> None:
        self.out.append("\n\n" if is_spaced else "\n")
        self.out.append(" " * indent)
        self.column = indent


def _write(root: _Branch) -> str:
    writer = _Writer()
    for number, item in enumerate(root.items):
        if number:
            is_beside = item.is_comment and not item.breaks and not _ends_line(root.items[number - 1])
            if is_beside:
                writer.put(" ")
            else:
                writer.new_line(0, item.breaks > 1)
        _write_node(writer, item)
    return "".join(writer.out) + "\n" if root.items else ""


def _ends_line(node: _Node) -> bool:
    return isinstance(node, _Leaf) and node.text.startswith((";", "#!"))


def _write_node(writer: _Writer, node: _Node) -> None:
    stack: list[_Open] = []

    def begin(node: _Node, tail: int, is_data: bool) -> None:
        if isinstance(node, _Leaf):
            writer.put(node.text)
        elif not node.is_broken and writer.column + node.width + tail <= WIDTH:
            writer.put("".join(_flat(node)))
        else:
            opened = _Open(node, writer.column, tail, is_data)
            if not node.is_broken and node.closer:
                opened.spread()
            stack.append(opened)
            writer.put(node.text)

    begin(node, 0, False)
    while stack:
        opened = stack[-1]
        branch = opened.branch
        items = branch.items
        at = opened.at
        if at == len(items):
            if items and _ends_line(items[-1]):
                writer.new_line(opened.indent(), False)
            writer.put(branch.closer)
            stack.pop()
            continue
        item = items[at]
        is_last = at + 1 == len(items)
        tail = opened.tail + len(branch.closer) if is_last else 0
        if not at:
            writer.put(" " * branch.gap)
        elif _breaks(writer, opened, item, tail):
            writer.new_line(opened.indent(), item.breaks > 1)
            opened.is_first_line = False
        else:
            writer.put(" ")
        if item.is_datum:
            if opened.count == 1 and opened.is_first_line:
                opened.align = writer.column
            opened.count += 1
        opened.at += 1
        begin(item, tail, opened.is_data or branch.text == "'")


def _breaks(writer: _Writer, opened: _Open, item: _Node, tail: int) -> bool:
    """Whether an item that is not the first begins a line."""
    before = opened.branch.items[opened.at - 1]
    if _ends_line(before) or item.breaks:
        return True
    if opened.room is not None and opened.count >= opened.room:
        return True
    if item.is_broken or item.is_comment:
        return False
    if writer.column + 1 + item.width + tail <= WIDTH:
        return False
    return opened.indent() + item.width + tail <= WIDTH


def _flat(node: _Branch) -> Iterator[str]:
    """The pieces of a branch in one line."""
    todo: list[_Node | str] = [node]
    while todo:
        item = todo.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, _Leaf):
            yield item.text
        else:
            yield item.text
            todo.append(item.closer)
            for part in reversed(item.items):
                todo.append(part)
                todo.append(" ")
            if item.items:
                todo.pop()
                todo.append(" " * item.gap)
