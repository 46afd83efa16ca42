"""Recovery from missing closing brackets, by indentation.

The contents of a form are indented further than the form. A line that is not indented further shows that a
form before it should have ended. A form that begins in the first column ends the search for the form before
it. If the indentation contradicts the existing brackets, it proves nothing, and the missing brackets are
added
at the end of their form. The result is a guess: it is used for diagnostics, never for the meaning of a
program.
"""

from __future__ import annotations

from typing import NamedTuple

from .lexer import kind_of

# Braces are errors, so they do not group anything.
_PAIRS = {"(": ")", "[": "]"}
_CLOSING = frozenset(_PAIRS.values())


class Missing(NamedTuple):
    """Closing brackets that are missing at offset `end`, the first for the bracket at `start`.

    is_guessed: the place is derived from the indentation.
    """

    start: int
    closers: str
    end: int
    is_guessed: bool


class _Mark(NamedTuple):
    """A bracket, or another token that begins a line. at: index of the token."""

    at: int
    token: str
    start: int
    column: int
    indent: int  # column in which its line begins
    is_first: bool


class _Hole(NamedTuple):
    """A missing closing bracket for the bracket `opener`, before the token with index `at`."""

    at: int
    opener: _Mark
    is_guessed: bool


def close_by_indentation(tokens: list[str], start: int, column: int) -> tuple[list[str], list[Missing]]:
    """Insert an empty token for each missing closing bracket; return the tokens and the missing brackets.

    start: offset of the first token. column: its column, from 0.
    """
    segments = _segments(_marks(tokens, start, column))
    depths = [_depth(marks) for marks in segments]
    holes: list[_Hole] = []
    at = 0
    while at < len(segments):
        marks = segments[at]
        at += 1
        opened = _open_at_end(marks)
        if not opened:
            continue
        if not any(mark.is_first for mark in marks[1:]):
            # The parts of this form may also begin in the first column.
            joined = _balanced_run(depths, at - 1)
            if joined:
                at = joined
                continue
        end = segments[at][0].at if at < len(segments) else len(tokens)
        holes += _holes(marks, end) or [_Hole(end, opener, False) for opener in reversed(opened)]
    return _fill(tokens, start, holes)


def _marks(tokens: list[str], position: int, column: int) -> list[_Mark]:
    marks = []
    line_start = position - column
    indent = 0
    is_first = True
    for index, token in enumerate(tokens):
        kind = kind_of(token)
        if kind not in ("blank", "comment", "block-comment"):
            column = position - line_start
            if is_first:
                indent = column
            if is_first or token in _PAIRS or token in _CLOSING:
                marks.append(_Mark(index, token, position, column, indent, is_first))
            is_first = False
        position += len(token)
        at = token.rfind("\n")
        if at >= 0:
            line_start = position - len(token) + at + 1
            if kind == "blank":
                is_first = True
    return marks


def _segments(marks: list[_Mark]) -> list[list[_Mark]]:
    """Split the marks at the forms that begin in the first column."""
    segments: list[list[_Mark]] = []
    for mark in marks:
        begins = mark.is_first and not mark.column and mark.token[0] in "([{'`,#"
        if begins or not segments:
            segments.append([])
        segments[-1].append(mark)
    return segments


def _open_at_end(marks: list[_Mark]) -> list[_Mark]:
    """Return the brackets that a segment leaves open, outermost first, matched as in the reader."""
    stack: list[_Mark] = []
    for mark in marks:
        if mark.token in _PAIRS:
            stack.append(mark)
        elif mark.token in _CLOSING and stack:
            partner = next(
                (at for at in range(len(stack) - 1, -1, -1) if _PAIRS[stack[at].token] == mark.token),
                len(stack) - 1,
            )
            del stack[partner:]
    return stack


def _balanced_run(depths: list[int], at: int) -> int:
    """Return the index after the shortest run of segments from `at` whose brackets balance; 0 if there is
    none
    nearby.
    """
    depth = 0
    for index in range(at, min(at + 50, len(depths))):
        depth += depths[index]
        if depth <= 0:
            return index + 1 if not depth else 0
    return 0


def _depth(marks: list[_Mark]) -> int:
    """Return the number of opening minus the number of closing brackets in a segment."""
    return sum((mark.token in _PAIRS) - (mark.token in _CLOSING) for mark in marks)


def _holes(marks: list[_Mark], end: int) -> list[_Hole]:
    """Return the missing brackets of a segment by its indentation; empty if the indentation contradicts its
    brackets.

    The required indentation is relative to the bracket or to the line of the bracket; both are tried.
    """
    for by_line in (False, True):
        stack: list[_Mark] = []
        holes: list[_Hole] = []
        for mark in marks:
            is_closer = mark.token in _CLOSING
            while mark.is_first and stack:
                opener = stack[-1]
                # A closing bracket that begins a line is aligned with the line of its opening bracket.
                if opener.indent <= mark.column if is_closer else _edge(opener, by_line) < mark.column:
                    break
                holes.append(_Hole(mark.at, stack.pop(), True))
            if mark.is_first and not stack and mark.column > marks[0].column:
                break  # indented as a part of a form that has ended
            if is_closer:
                if not stack or _PAIRS[stack.pop().token] != mark.token:
                    break
            elif mark.token in _PAIRS:
                stack.append(mark)
        else:
            return holes + [_Hole(end, opener, True) for opener in reversed(stack)]
    return []


def _edge(opener: _Mark, by_line: bool) -> int:
    return opener.indent if by_line else opener.column


def _fill(tokens: list[str], start: int, holes: list[_Hole]) -> tuple[list[str], list[Missing]]:
    """Insert the missing brackets directly after the datum before them."""
    groups: dict[int, list[_Hole]] = {}
    for hole in holes:
        groups.setdefault(hole.at, []).append(hole)
    starts = [start]
    for token in tokens:
        starts.append(starts[-1] + len(token))
    filled: list[str] = []
    missing: list[Missing] = []
    done = 0
    for index in sorted(groups):
        group = groups[index]
        place = index
        while place > done and kind_of(tokens[place - 1]) in ("blank", "comment", "block-comment"):
            place -= 1
        filled += tokens[done:place]
        filled += [""] * len(group)
        done = place
        first = group[0] if group[0].is_guessed else group[-1]
        closers = "".join(_PAIRS[hole.opener.token] for hole in group)
        missing.append(Missing(first.opener.start, closers, starts[place], first.is_guessed))
    return filled + tokens[done:], missing
