"""Programs that read an argument as code: what a value must not be part of, however well quoted.

Quoting carries a value through one shell. `sh -c '…'`, `eval`, `ssh host …`, `python -c '…'` read
their argument again, and bash itself evaluates array subscripts and arithmetic in places that look
like data. This module owns the tables of those readers and what to write instead.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .commands import DECLARERS
from .troubles import Trouble


def _code(message: str, help: str, severity: str = "error") -> Trouble:
    return Trouble("variable-in-code", message, help, severity)


_SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "csh", "tcsh")
_SHELL_FLAG = re.compile(r"-[A-Za-z]*c")
_C_FLAG = re.compile(r"-[A-Za-z]*c|--command=?")
_E_FLAG = re.compile(r"-[A-Za-z0-9]*[eE]|--e(?:val|xecute|xpression)=?")
_NODE_FLAG = re.compile(r"-(?:e|p|pe)|--(?:eval|print)=?")
_R_FLAG = re.compile(r"-r")

# The option whose argument a program reads as code.
CODE_OPTIONS: dict[str, re.Pattern[str]] = {
    **dict.fromkeys(_SHELLS, _SHELL_FLAG),
    **dict.fromkeys(("su", "runuser", "script", "flock", "sg", "psql", "python", "pypy", "pwsh"), _C_FLAG),
    **dict.fromkeys(("perl", "ruby", "lua", "julia", "Rscript", "osascript", "mysql", "mariadb"), _E_FLAG),
    **dict.fromkeys(("node", "bun", "nodejs"), _NODE_FLAG),
    "php": _R_FLAG,
}

_SHELL_FIX = "pass it as an argument instead: `sh -c '… \"$1\" …' _ @`"
_CODE_FIX = {
    **dict.fromkeys(("python", "pypy"), "pass it as an argument instead: `python -c '… sys.argv[1] …' @`"),
    **dict.fromkeys(("perl",), "pass it as an argument instead: `perl -e '… $ARGV[0] …' -- @`"),
    **dict.fromkeys(("ruby",), "pass it as an argument instead: `ruby -e '… ARGV[0] …' -- @`"),
    **dict.fromkeys(
        ("node", "bun", "nodejs"), "pass it as an argument instead: `node -e '… process.argv[1] …' @`"
    ),
    **dict.fromkeys(_SHELLS, _SHELL_FIX),
}
_ENVIRONMENT_FIX = "put it in the environment instead: `V=@ command …`, and read `V` in the program"

# Filters whose program is their first operand: the options that take so many arguments before it.
_AWKS = ("awk", "gawk", "mawk", "nawk")
FILTERS: dict[str, dict[str, int]] = {
    **{awk: {"-v": 1, "-F": 1, "--assign": 1} for awk in _AWKS},
    **{sed: {"-l": 1} for sed in ("sed", "gsed")},
    "jq": {"--arg": 2, "--argjson": 2, "--slurpfile": 2, "--rawfile": 2, "--indent": 1, "-L": 1},
}
_FILTER_FIX = {
    **dict.fromkeys(_AWKS, "put it in the environment: `V=@ awk '… ENVIRON[\"V\"] …'`"),
    "jq": "pass it as an argument: `jq --arg v @ '… $v …'`",
}

# These take operands before the option; an interpreter takes its script there.
_WITH_OPERANDS = frozenset({"su", "runuser", "script", "flock", "sg", "psql", "mysql", "mariadb"})
_INTERPRETER_OPTIONS = re.compile(r"-[A-Za-z]*[oOWXIMrS]|--(?:rcfile|init-file|require|import)")
_SSH_OPTIONS = re.compile(r"-[A-Za-z0-9]*[BbcDEeFIiJLlmOoPpQRSWw]")
_READ_OPTIONS = re.compile(r"-[A-Za-z]*[dinNptu]")
_NAME_TAKERS = frozenset({"unset", "getopts", "mapfile", "readarray"})
_PREFIXES = frozenset({"command", "builtin", "sudo", "env", "nohup", "nice", "exec", "time", "timeout"})
_ARITHMETIC_TESTS = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge"})
_NAME_TESTS = frozenset({"-v", "-R"})

IN_SUBSCRIPT = _code(
    "stands in an array subscript, which bash evaluates and may run",
    "use a plain variable: `v=@`",
)
AS_NAME = _code(
    "names a shell variable, and bash may run a subscript in a name",
    "write a fixed name; a value belongs behind a `=`",
)
IN_ARITHMETIC_TEST = _code(
    "is compared as a number inside `[[ … ]]`, where bash evaluates and may run it",
    "write `[ … ]`, which takes numbers only",
)
IN_NAME_TEST = _code(
    "names a variable to be tested, and bash may run a subscript in a name",
    "write a fixed name",
)
EVALUATED = _code(
    "is read by the shell a second time here",
    "leave `eval` away, or put the value in a shell variable first (`v=@`) and write `\\$v` here",
)
REMOTE = _code(
    "is read again by the shell on the other side",
    "send it on standard input instead: `printf '%s\\n' @ | ssh host 'read -r v; …'`",
)


def _program(word: str) -> str:
    """The name a command word stands for: without folders and version numbers."""
    return re.sub(r"[0-9.]+\Z", "", word.rsplit("/", 1)[-1])


def _command(words: Sequence[str]) -> int:
    """The index of the word that names the command, behind words such as `command` and `sudo`."""
    for index, word in enumerate(words):
        if word not in _PREFIXES and not word.startswith("-") and "=" not in word:
            return index
    return len(words)


def reader_of(words: Sequence[str], prefix: str, *, is_first: bool, is_array: bool) -> Trouble | None:
    """What is wrong with a variable behind `prefix` in the word that follows `words`, if anything.

    Words are without their quotes, with a NUL where they are not fixed; `is_first` if the word may
    still be an assignment or the command's name; `is_array` inside `a=( … )`.
    """
    if is_array:
        return IN_SUBSCRIPT if re.match(r"\[[^\]]*\Z", prefix) else None
    if is_first:
        return IN_SUBSCRIPT if re.match(r"[A-Za-z_]\w*\[[^\]]*\Z", prefix) else None
    at = _command(words)
    name = words[at] if at < len(words) else ""
    before = words[-1] if words else ""
    trouble = _builtin(name, words[at + 1 :], before, prefix)
    if trouble is not None:
        return trouble
    for index, word in enumerate(words):
        program = _program(word)
        rest = words[index + 1 :]
        if program in CODE_OPTIONS and _is_code(program, rest, prefix):
            return _code(f"is part of code that `{program}` reads", _CODE_FIX.get(program, _ENVIRONMENT_FIX))
        if program == "ssh" and _operands(rest, _SSH_OPTIONS):
            return REMOTE
        if program in FILTERS and _is_program(program, rest, prefix):
            help = _FILTER_FIX.get(program, "a value in it can do what a program can; check the value first")
            return _code(f"is part of the program that `{program}` runs", help, "warning")
    return None


def _operands(words: Sequence[str], with_argument: re.Pattern[str]) -> list[str]:
    """The words that are neither options nor the arguments of options `with_argument`."""
    found = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word.startswith("-") and len(word) > 1:
            skip = with_argument.fullmatch(word) is not None
        else:
            found.append(word)
    return found


def _is_code(program: str, words: Sequence[str], prefix: str) -> bool:
    """Whether the word that begins with `prefix` behind `words` is code to `program`."""
    option = CODE_OPTIONS[program]
    if words and option.fullmatch(words[-1]):
        before = words[:-1]
    elif prefix.startswith("-") and option.match(prefix):
        before = words
    else:
        return False
    # `python x.py -c …` and `python -m pytest -c …` are somebody else's option.
    return program in _WITH_OPERANDS or ("-m" not in before and not _operands(before, _INTERPRETER_OPTIONS))


def _is_program(program: str, words: Sequence[str], prefix: str) -> bool:
    options = FILTERS[program]
    if words and words[-1] in ("-e", "--expression") and program in ("sed", "gsed"):
        return True
    if prefix.startswith("-"):
        return False
    skip = 0
    for word in words:
        if skip:
            skip -= 1
        elif word in ("-f", "--file", "--from-file", "-e"):
            return False
        elif word in options:
            skip = options[word]
        elif not (word.startswith("-") and len(word) > 1):
            return False
    return not skip


def _builtin(name: str, words: Sequence[str], before: str, prefix: str) -> Trouble | None:
    if name == "eval" or (name == "trap" and not words):
        return EVALUATED
    if name == "watch":
        return EVALUATED
    if name == "let":
        return IN_ARITHMETIC_TEST
    if name in DECLARERS and "=" not in prefix and not prefix.startswith("-"):
        return AS_NAME
    if name in DECLARERS and re.match(r"[A-Za-z_]\w*\[[^\]]*\Z", prefix):
        return IN_SUBSCRIPT
    if name in _NAME_TAKERS or (name == "read" and not _READ_OPTIONS.fullmatch(before)):
        return AS_NAME
    if name == "printf" and before == "-v" and len(words) == 1:
        return AS_NAME
    if name in ("[", "test") and before in _NAME_TESTS:
        return IN_NAME_TEST
    return None


def is_arithmetic_test(words: Sequence[str]) -> Trouble | None:
    """What is wrong with variables in a `[[ … ]]` condition of these words, if anything."""
    if not _ARITHMETIC_TESTS.isdisjoint(words):
        return IN_ARITHMETIC_TEST
    if not _NAME_TESTS.isdisjoint(words):
        return IN_NAME_TEST
    return None


def here_document_reader(words: Sequence[str]) -> Trouble | None:
    """What is wrong with a variable in the here-document of a command of these words, if anything."""
    at = _command(words)
    rest = words[at + 1 :]
    program = _program(words[at]) if at < len(words) else ""
    if program in CODE_OPTIONS and not [word for word in rest if word == "-c" or not word.startswith("-")]:
        return _code(f"is part of code that `{program}` reads", _CODE_FIX.get(program, _ENVIRONMENT_FIX))
    if program == "ssh":
        return REMOTE
    return None
