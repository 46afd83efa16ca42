"""Outline of a file: its title, its leading comment or paragraph, the names that it defines.

Regular expressions approximate most languages: an index of names tolerates a wrong name, and regular
expressions also work for incomplete files, which a parser rejects.
"""

from __future__ import annotations

import re
from typing import NamedTuple

# Characters of the examined start of a file.
_HEAD = 16_000
# Limits of an outline: characters of `about`, lines of the leading comment, number of symbols.
_MAX_ABOUT = 4_000
_MAX_LINES = 60
_MAX_SYMBOLS = 2_000

_PROSE = frozenset({"md", "markdown", "rst", "adoc", "org", "txt", "tex"})
_DATA = frozenset({"json", "yaml", "yml", "toml", "xml", "cfg", "ini", "html", "htm", "svg"})
_LISP = frozenset({"sexp", "lisp", "scm", "el", "clj", "cljs", "rkt", "ss"})
_BRACES = frozenset({"c", "h", "cc", "cpp", "cxx", "hpp", "hh", "m", "mm", "java", "cs", "kt", "d", "glsl"})

_HEADING = re.compile(r"^#{1,6}[ \t]+(.+)|^=+[ \t]+(.+)|^\*+[ \t]+(.+)", re.MULTILINE)
_UNDERLINED = re.compile(r"^(\S.{0,120})\n(?:={3,}|-{3,}|~{3,})[ \t]*$", re.MULTILINE)
_TITLE = re.compile(
    r"""(?:^[ \t\-]*|[{,][ \t]*)["']?(?:name|title|description|summary|id)["']?[ \t]*[:=][ \t]*"""
    r"""(?:"([^"\n]{1,300})|([^"\s{\[][^\n]{0,300}))"""
    r"|<(?:title|h1|description|name)[^>\n]{0,80}>([^<\n]{1,300})",
    re.IGNORECASE | re.MULTILINE,
)
# Every repetition is bounded, so that a very long line cannot cause backtracking.
_NAME = r"([A-Za-z_$À-\uffff][\w$À-\uffff]{0,100}[?!]?)"
_MODIFIER = (
    r"(?:export|default|public|private|protected|internal|static|async|abstract|final|sealed|open|override"
    r"|pub(?:\([\w:]+\))?|unsafe|extern|inline|declare|data|partial|local|readonly|virtual|constexpr)"
)
_KEYWORD = (
    r"(?:def|class|function\*?|func|fun|fn|sub|struct|enum|trait|interface|type|typealias|impl|module|mod"
    r"|namespace|package|macro_rules!|record|object|protocol|union|proc|method|defmodule|defp?|typedef)"
)
_DEFINED = re.compile(
    rf"^[ \t]*(?:{_MODIFIER}[ \t]+){{0,5}}{_KEYWORD}[ \t]+(?:\([^)\n]{{0,80}}\)[ \t]*)?{_NAME}", re.MULTILINE
)
_ASSIGNED = re.compile(
    rf"^(?:export[ \t]+)?(?:(?:const|let|var|val|static|my|our)[ \t]+)?{_NAME}"
    r"[ \t]*(?::[^=\n]{1,80})?:?=(?!=)",
    re.MULTILINE,
)
_LISP_DEFINED = re.compile(r"^[ \t]*\((?:define|def)[\w*-]{0,40}[ \t]+\(?([^\s()\"']{1,100})", re.MULTILINE)
# A line such as `static int *name(…` without a final `;`; the name is the last word before the bracket.
_BRACE_DEFINED = re.compile(
    r"""^(?=[A-Za-z_])[^\n;={}()"']{0,160}?(?<![^\s*&:~])([A-Za-z_]\w{0,100})[ \t]?\([^;\n]*$""", re.MULTILINE
)
_SHELL_DEFINED = re.compile(r"^([\w.-]{1,100})[ \t]*\(\)", re.MULTILINE)
_TARGET = re.compile(r"^([\w.%/-]{1,100})[ \t]*:(?!=)", re.MULTILINE)
_SQL_DEFINED = re.compile(
    r"^[ \t]*create[ \t]+(?:or[ \t]+replace[ \t]+)?(?:temp(?:orary)?[ \t]+|unique[ \t]+)?"
    r"(?:table|view|index|function|procedure|trigger|type)[ \t]+"
    r"(?:if[ \t]+not[ \t]+exists[ \t]+)?([\w.\"`]{1,100})",
    re.IGNORECASE | re.MULTILINE,
)

_QUOTES = ('"""', "'''")
_BLOCKS = {"/*": "*/", "<!--": "-->", "#|": "|#", "{-": "-}", "(*": "*)", "=begin": "=end", "--[[": "]]"}
_LINE_COMMENT = re.compile(r"^[ \t]*(?:#+!?|//[/!]?|--+|;+|%+|\*+|REM\b|@echo off)[ \t]?(.*)")
# Lines that may precede the leading comment.
_PREAMBLE = re.compile(
    r"^[ \t]*(?:$|#!|<\?|<!doctype|package\b|import\b|from\b|use\b|using\b|require\b|#include|#pragma"
    r"|\"use strict\"|'use strict'|@charset|-\*-)",
    re.IGNORECASE,
)
# Lines of a leading comment without information about the file.
_BOILERPLATE = re.compile(r"-\*-|vim:|coding[:=]|SPDX-License|Copyright|All rights reserved", re.IGNORECASE)


class Outline(NamedTuple):
    """about: titles and leading comment. symbols: the names that the file defines, separated by spaces."""

    about: str
    symbols: str


def outline(path: str, text: str) -> Outline:
    """The outline of a file. path: determines the language."""
    name = path.rpartition("/")[2].lower()
    extension = name.rpartition(".")[2]
    head = text[:_HEAD]
    if extension in _PROSE:
        titles = [next(filter(None, match.groups())) for match in _HEADING.finditer(text)]
        titles += [match[1] for match in _UNDERLINED.finditer(text)]
        return Outline("\n".join([*titles[:200], _first_paragraph(head)])[:_MAX_ABOUT], "")
    about = _leading_comment(head)
    if extension in _DATA:
        titles = [next(filter(None, match.groups())) for match in _TITLE.finditer(head)]
        return Outline("\n".join(filter(None, [about, *titles[:40]]))[:_MAX_ABOUT], "")
    return Outline(about[:_MAX_ABOUT], " ".join(_symbols(name, extension, text)))


def _symbols(name: str, extension: str, text: str) -> list[str]:
    patterns = [_DEFINED, _ASSIGNED]
    if extension in _LISP:
        patterns = [_LISP_DEFINED]
    elif extension in _BRACES:
        patterns = [_DEFINED, _BRACE_DEFINED]
    elif extension in ("sh", "bash", "zsh", "ksh"):
        patterns = [_DEFINED, _SHELL_DEFINED]
    elif extension in ("mk", "make") or name in ("makefile", "gnumakefile", "justfile"):
        patterns = [_TARGET]
    elif extension == "sql":
        patterns = [_SQL_DEFINED]
    names = dict.fromkeys(match[1] for pattern in patterns for match in pattern.finditer(text))
    return list(names)[:_MAX_SYMBOLS]


def _first_paragraph(text: str) -> str:
    """The first lines that are not headings, up to a blank line."""
    lines: list[str] = []
    for line in text.split("\n")[:_MAX_LINES]:
        bare = line.strip()
        if bare and not bare.startswith(("#", "=", "---", "[!", "<")):
            lines.append(bare)
        elif lines:
            break
    return " ".join(lines)


def _leading_comment(text: str) -> str:
    """The comments and the docstring at the start of a file, without their delimiters."""
    comments: list[str] = []
    end = None
    for line in text.split("\n")[:_MAX_LINES]:
        bare = line.strip()
        if end is not None:
            inside, closed, _ = bare.partition(end)
            comments.append(inside.strip(" *"))
            end = None if closed else end
            continue
        delimiter = _opening_delimiter(bare)
        if delimiter is not None:
            close = _BLOCKS.get(delimiter, delimiter)
            inside, closed, _ = bare[bare.index(delimiter) + len(delimiter) :].partition(close)
            comments.append(inside.strip(" *!"))
            end = None if closed else close
        elif bare.startswith("#!") or _PREAMBLE.match(line):
            continue
        elif comment := _LINE_COMMENT.match(line):
            comments.append(comment[1])
        else:
            break
    return "\n".join(line for line in comments if line and not _BOILERPLATE.search(line))


def _opening_delimiter(line: str) -> str | None:
    """The delimiter of a block comment or docstring at the start of a line; None if there is none."""
    if line[:1] in "rRuUfFbB" and line[1:4] in _QUOTES:
        return line[1:4]
    return next((delimiter for delimiter in (*_QUOTES, *_BLOCKS) if line.startswith(delimiter)), None)
