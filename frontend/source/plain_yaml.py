"""Reader of plain YAML: the tree of a text that uses only the common part of the syntax.

PyYAML takes longer to import than llc needs to compile a loop. This reader accepts block mappings and lists,
`{}` and `[]` on one line, one-line scalars, quoted texts, and blocks after `|` and `>`, as most loops are
written. It reports nothing: for any other text, correct or not, it gives no tree, and `yaml_tree` reads the
text with PyYAML. The tree of an accepted text is the same, with the same positions; this law is tested.
"""

from __future__ import annotations

from ...ir.scalars import read_scalar
from .document import Mapping, Node, Scalar, Sequence

# Longer texts are read faster by PyYAML, its import included.
_MAX_LENGTH, _MAX_DEPTH, _MAX_KEY = 20_000, 20, 100
# A plain scalar begins with none of these (YAML 1.2, 7.3.3), and inside `{}` and `[]` contains none of these.
_NOT_FIRST = frozenset("-?:,[]{}#&*!|>'\"%@`")
_NOT_IN_FLOW = frozenset("?:[]{}#&*!|>'\"%@`\\")
_ESCAPES = {"n": "\n", '"': '"', "\\": "\\"}


class _NotPlain(Exception):
    """The text needs all of YAML."""


def read_plain_tree(text: str) -> Node | None:
    """The tree of a text, or None if the text is not plain. The text has no forbidden characters."""
    if len(text) > _MAX_LENGTH or text[-1:] != "\n" or any(map(text.__contains__, "\t\r\x85\u2028\u2029")):
        return None
    try:
        return _Reader(text).read()
    except (_NotPlain, ValueError):  # ValueError: a number with too many digits
        return None


class _Reader:
    """A position in the lines of a text; each method reads one construct and moves behind it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = text.split("\n")[:-1]
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line) + 1)
        self.at = 0  # number of the line
        self.depth = 0

    def read(self) -> Node:
        if self.indentation() != 0:
            raise _NotPlain
        root = self.block(0, 0)
        if self.indentation() >= 0:
            raise _NotPlain
        return root

    def indentation(self) -> int:
        """The indentation of the next line that has content; -1 at the end of the text."""
        while self.at < len(self.lines):
            line = self.lines[self.at]
            content = line.lstrip(" ")
            if content and content[0] != "#":
                if line.startswith(("---", "...", "%")):
                    raise _NotPlain
                return len(line) - len(content)
            self.at += 1
        return -1

    def block(self, indent: int, column: int) -> Node:
        """A block mapping or list. column: where its first entry begins in this line; indent: the others."""
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise _NotPlain
        is_list = self.lines[self.at][column:].startswith("- ")
        start = self.starts[self.at] + column
        node: Mapping | Sequence = Sequence(start) if is_list else Mapping(start)
        while True:
            if isinstance(node, Sequence):
                self.item(node, indent, column)
            else:
                self.entry(node, indent, column)
            found = self.indentation()
            if found > indent:
                raise _NotPlain
            if found < indent or self.lines[self.at].startswith("- ", indent) != is_list:
                self.depth -= 1
                return node
            column = indent

    def item(self, node: Sequence, indent: int, column: int) -> None:
        line = self.lines[self.at]
        if not line.startswith("- ", column):
            raise _NotPlain
        first = column + 1
        while line[first : first + 1] == " ":
            first += 1
        if line[first : first + 1] not in ("", "#", "-") and _key_end(line, first):
            item = self.block(first, first)
        else:
            item = self.value(indent, first)
        node.items.append(item)
        _add(node, item)

    def entry(self, node: Mapping, indent: int, column: int) -> None:
        line, start = self.lines[self.at], self.starts[self.at]
        end = _key_end(line, column)
        name = line[column:end]
        if not end or name in node.entries or not isinstance(read_scalar(name), str):
            raise _NotPlain
        key = Scalar(name, name, True, start + column, start + end)
        first = end + 1
        while line[first : first + 1] == " ":
            first += 1
        if line[first : first + 1] in ("", "#"):
            self.at += 1
            found = self.indentation()
            if found < indent or (found == indent and not self.lines[self.at].startswith("- ", indent)):
                raise _NotPlain  # a key without value
            value = self.block(found, found)
        else:
            value = self.value(indent, first)
        node.entries[name] = (key, value)
        _add(node, key)
        _add(node, value)

    def value(self, indent: int, first: int) -> Node:
        """The value that begins at `first` of this line, inside a block of this indentation."""
        line, start = self.lines[self.at], self.starts[self.at]
        node: Node
        match line[first : first + 1]:
            case "|" | ">":
                return self.block_scalar(indent, first)
            case "{" | "[":
                node, end = self.flow(line, start, first)
            case "'" | '"':
                node, end = self.quoted(line, start, first)
            case _:
                end = line.find(" #", first)
                end = len(line[: end if end >= 0 else len(line)].rstrip(" "))
                text = line[first:end]
                if not _is_plain_start(text) or ": " in text or text[-1] == ":":
                    raise _NotPlain
                node = Scalar(read_scalar(text), text, True, start + first, start + end)
        rest = line[end:].lstrip(" ")
        if rest and (rest[0] != "#" or line[end] != " "):
            raise _NotPlain
        self.at += 1
        if self.indentation() > indent:
            raise _NotPlain  # a scalar of several lines
        return node

    def block_scalar(self, indent: int, first: int) -> Scalar:
        header, start = self.lines[self.at][first:].rstrip(" "), self.starts[self.at] + first
        self.at += 1
        if header not in ("|", "|-", ">", ">-"):
            raise _NotPlain
        begin = self.at
        while begin < len(self.lines) and not self.lines[begin].strip(" "):
            begin += 1
        inner = len(self.lines[begin]) - len(self.lines[begin].lstrip(" ")) if begin < len(self.lines) else 0
        if inner <= indent or any(len(line) > inner for line in self.lines[self.at : begin]):
            raise _NotPlain
        end = begin
        while end < len(self.lines) and (
            self.lines[end].startswith(" " * inner) or not self.lines[end].strip(" ")
        ):
            end += 1
        text = "\n".join(line[inner:] for line in self.lines[self.at : end]).rstrip("\n")
        if header[0] == ">":
            if "\n\n" in text or "\n " in text or text[:1] in ("\n", " "):
                raise _NotPlain  # these lines are not folded
            text = text.replace("\n", " ")
        self.at = end
        if self.indentation() > indent:
            raise _NotPlain
        last = start + len(self.text[start : self.starts[end]].rstrip())
        text += "" if header[1:] else "\n"
        return Scalar(text, text, False, start, last)

    def quoted(self, line: str, start: int, first: int) -> tuple[Scalar, int]:
        """A text in quotes that ends on its line, and the column behind it."""
        quote, text, at = line[first], "", first + 1
        while True:
            end = line.find(quote, at)
            if end < 0:
                raise _NotPlain
            if quote == '"' and (escape := line.find("\\", at, end)) >= 0:
                text += line[at:escape] + _ESCAPES.get(line[escape + 1 : escape + 2], "\0")
                at = escape + 2
            elif quote == "'" and line[end + 1 : end + 2] == "'":
                text += line[at : end + 1]
                at = end + 2
            else:
                text += line[at:end]
                break
        if "\0" in text:
            raise _NotPlain  # another escape sequence
        return Scalar(text, text, False, start + first, start + end + 1), end + 1

    def flow(self, line: str, start: int, first: int) -> tuple[Node, int]:
        """A mapping in `{}` or a list in `[]` that ends on its line, and the column behind it."""
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise _NotPlain
        is_list = line[first] == "["
        node: Mapping | Sequence = Sequence(start + first) if is_list else Mapping(start + first)
        close, at = "]" if is_list else "}", _skip(line, first + 1)
        while line[at : at + 1] != close:
            key = None
            if isinstance(node, Mapping):
                end = _key_end(line, at)
                name = line[at:end]
                if not end or line[end : end + 2] != ": " or not isinstance(read_scalar(name), str):
                    raise _NotPlain
                key = Scalar(name, name, True, start + at, start + end)
                at = _skip(line, end + 1)
            value: Node
            if line[at : at + 1] in ("{", "["):
                value, at = self.flow(line, start, at)
            elif line[at : at + 1] in ("'", '"'):
                value, at = self.quoted(line, start, at)
            else:
                found = [end for mark in (",", close) if (end := line.find(mark, at)) >= 0]
                end = min(found, default=at)
                text = line[at:end].rstrip(" ")
                if not _is_plain_start(text) or not _NOT_IN_FLOW.isdisjoint(text):
                    raise _NotPlain
                value = Scalar(read_scalar(text), text, True, start + at, start + at + len(text))
                at = end
            if isinstance(node, Sequence):
                node.items.append(value)
            elif key is not None and key.text not in node.entries:
                node.entries[key.text] = (key, value)
                _add(node, key)
            else:
                raise _NotPlain
            _add(node, value)
            at = _skip(line, at)
            if line[at : at + 1] == ",":
                at = _skip(line, at + 1)
                if line[at : at + 1] == close:
                    raise _NotPlain
            elif line[at : at + 1] != close:
                raise _NotPlain
        self.depth -= 1
        node.end = start + at + 1
        return node, at + 1


def _is_plain_start(text: str) -> bool:
    is_option = text[:1] == "-" and (text[1:2] == "-" or text[1:2].isalnum())
    return is_option or (text != "" and text[0] not in _NOT_FIRST)


def _skip(line: str, at: int) -> int:
    """The column of the next character that is not a space."""
    while line[at : at + 1] == " ":
        at += 1
    return at


def _key_end(line: str, first: int) -> int:
    """The column of the `:` behind a key that is a word; 0 if there is none."""
    end = line.find(":", first)
    word = line[first:end].replace("_", "a").replace("-", "a")
    is_key = word.isalnum() and word.isascii() and line[first] != "-" and line[end + 1 : end + 2] in ("", " ")
    return end if is_key and 0 < end < first + _MAX_KEY else 0


def _add(parent: Mapping | Sequence, node: Node) -> None:
    parent.height = max(parent.height, node.height + 1)
    parent.weight += node.weight
    parent.end = node.end
