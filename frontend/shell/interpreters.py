"""Programs and builtins that evaluate an argument as code, where quoting does not make a value safe.

Quoting protects a value in one shell only. `sh -c '…'`, `eval`, `ssh host …`, `python -c '…'` evaluate
their argument again, and bash itself evaluates array subscripts and arithmetic in places that look
like data. This module owns the tables of these programs. The tables are incomplete: a program that is not in
them may evaluate its arguments too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from ...ir.python_internals import late_pattern
from ...ir.records import frozen
from .code_hazards import (
    AS_COMMAND,
    AS_FORMAT,
    AS_NAME,
    AS_NUMBER,
    AS_OPTION,
    COMMAND,
    EVALUATED,
    IN_ARITHMETIC,
    IN_ARITHMETIC_TEST,
    IN_GIT,
    IN_GIT_PULL,
    IN_MAKE,
    IN_NAME_TEST,
    IN_SUBSCRIPT,
    MAKE_FIX,
    REMOTE,
    RUN_BY_PROGRAM,
    RUN_BY_SHELL,
    code_hazard,
)
from .command_words import (
    NO_OPTION,
    OPERANDS_BEFORE_COMMAND,
    PREFIXES,
    command_at,
    operands_of,
    program_of,
    word_at,
)
from .expansions import HOLE
from .grammar import ASSIGNMENT, DECLARERS, words_of
from .hazards import Hazard


@frozen
class Interpreter:
    """Programs that take code as the argument of an option, and the alternative to suggest."""

    programs: tuple[str, ...]
    option: re.Pattern[str]
    fix: str
    # Whether the first operand is a script, so that options after it belong to the script.
    has_script: bool = True
    reads_input: bool = True


SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "csh", "tcsh")
_PASS_AS_ARGUMENT = "pass it as an argument instead: "
_SHELL_FIX = _PASS_AS_ARGUMENT + "`sh -c '… \"$1\" …' _ @`"
_QUERY_FIX = "give it to the query as a parameter, or check before that it is what you expect"
_SCRIPT = late_pattern(r"-[A-Za-z]*c")
_C = late_pattern(r"-[A-Za-z]*c|--command=?")
_E = late_pattern(r"-[A-Za-z0-9]*[eE]|--e(?:val|xecute|xpression)=?")
_FIXED_NAME = "write a fixed program name; the use of the value by another program is unknown"
_FIXED = "write a fixed text here; the program may run the option's value"
_PSQL_FIX = (
    "pass it as a variable, which only a query on standard input sees: `echo \"select :'v'\" | psql -v v=@`"
)
_GIT_OPTIONS = late_pattern(r"-[Cc]|--(?:git-dir|work-tree|namespace)")
_PACK = late_pattern(r"-u|--(?:upload-pack|receive-pack|exec|config)=?")
_GIT_CODE = {
    **dict.fromkeys(
        ("clone", "fetch", "fetch-pack", "ls-remote", "archive", "pull", "push", "send-pack"), _PACK
    ),
    "rebase": late_pattern(r"-x|--exec=?"),
    "difftool": late_pattern(r"-x|--extcmd=?"),
    "grep": late_pattern(r"-O|--open-files-in-pager=?"),
    "filter-branch": late_pattern(r"--\w+-filter=?"),
}
# Options of subcommands whose argument is the next word.
_GIT_ARGUMENTS = {
    "archive": late_pattern(r"-o|--(?:output|prefix|format|remote)"),
    "clone": late_pattern(r"-[boj]|--(?:branch|depth|origin|jobs|reference)"),
    "fetch": late_pattern(r"-j|--(?:depth|jobs)"),
    "grep": late_pattern(r"-[A-Za-z]*e|-[fABC]"),
    "push": late_pattern(r"-o|--push-option"),
    "rebase": late_pattern(r"-[sX]|--(?:onto|strategy)"),
}
# Subcommands with options that run a command, or write to any file, such as `.git/config`.
_GIT_WRITERS = frozenset({"log", "show", "diff", "bisect", "submodule"})
_GIT_DATA = late_pattern(r"user\.(?:name|email)=")
# Pattern that the unquoted command must contain for the program to evaluate or run anything.
REQUIRED_SYNTAX = {
    "git": late_pattern(
        rf"-[A-Za-z]*c(?!\w)|\b(?:config|bisect|submodule|{'|'.join(_GIT_CODE)})\b|\bgit\b[^;&|\n]*[$`{HOLE}]"
    ),
    "find": late_pattern(r"-[A-Za-z]*c(?!\w)|-execdir|-ok|\bfind\b[^;&|\n]*[$`]"),
    ".": late_pattern(r"(?:\A|[\s;&|(){/!`])\.(?=[\s;|&()<>`]|\Z)"),
}

INTERPRETERS = {
    name: reader
    for reader in (
        Interpreter(SHELLS, _SCRIPT, _SHELL_FIX),
        Interpreter(("su", "runuser", "script", "flock", "sg", "pwsh"), _C, _SHELL_FIX, False),
        Interpreter(
            ("python", "pypy"),
            late_pattern(r"-[A-Za-z]*c"),
            _PASS_AS_ARGUMENT + "`python -c '… sys.argv[1] …' @`",
        ),
        Interpreter(("perl",), _E, _PASS_AS_ARGUMENT + "`perl -e '… $ARGV[0] …' -- @`"),
        Interpreter(("ruby",), _E, _PASS_AS_ARGUMENT + "`ruby -e '… ARGV[0] …' -- @`"),
        Interpreter(("julia", "Rscript", "osascript"), _E, _PASS_AS_ARGUMENT + "put it after the code"),
        Interpreter(("lua",), _E, "put it in the environment: `V=@ lua -e '… os.getenv(\"V\") …'`"),
        Interpreter(
            ("node", "nodejs", "bun"),
            late_pattern(r"-(?:e|p|pe)|--(?:eval|print)=?"),
            _PASS_AS_ARGUMENT + "`node -e '… process.argv[1] …' @`",
        ),
        Interpreter(("php",), late_pattern(r"-r"), _PASS_AS_ARGUMENT + "`php -r '… $argv[1] …' -- @`"),
        Interpreter(("psql",), _C, _PSQL_FIX, False),
        Interpreter(("mysql", "mariadb"), _E, _QUERY_FIX, False),
        *(
            Interpreter(programs, option, fix, False, False)
            for programs, option, fix in (
                (("ssh", "scp", "sftp"), late_pattern(r"-[A-Za-z0-9]*[oF]"), _FIXED),
                (("rsync",), late_pattern(r"-[A-Za-z]*e|--rs(?:h|ync-path)=?"), _FIXED),
                (
                    ("tar",),
                    late_pattern(r"-[A-Za-z]*[IF]|--(?:use-c|checkpoint-a|to-c|rsh-c|info-s|new-v)\S*"),
                    _FIXED,
                ),
                (("zip",), late_pattern(r"-[A-Za-z]*TT|--unzip-command=?"), _FIXED),
                (("man",), late_pattern(r"-[A-Za-z]*[PH]|--(?:pager|html)=?"), _FIXED),
                (("env",), late_pattern(r"-[A-Za-z0]*S|--split-string=?"), _SHELL_FIX),
                (("make", "gmake"), late_pattern(r"--eval=?|-E"), MAKE_FIX),
                (("vim", "vi", "ex", "nvim", "view"), late_pattern(r"-[cS]|--cmd|\+"), _FIXED),
                (
                    ("emacs", "gdb", "lldb"),
                    late_pattern(r"--?(?:i?ex|[eof]|eval\S*|execute|funcall)"),
                    _FIXED,
                ),
                (("sqlite3",), late_pattern(r"--?cmd"), _QUERY_FIX),
                (("xterm", "expect", "deno"), late_pattern(r"-[ec]|eval"), _FIXED),
            )
        ),
    )
    for name in reader.programs
}

# Filters whose program is their first operand: their options with the number of arguments.
_AWKS = ("awk", "gawk", "mawk", "nawk")
FILTERS: dict[str, dict[str, int]] = {
    **{awk: {"-v": 1, "-F": 1, "--assign": 1} for awk in _AWKS},
    **{sed: {"-l": 1} for sed in ("sed", "gsed")},
    "jq": {"--arg": 2, "--argjson": 2, "--slurpfile": 2, "--rawfile": 2, "--indent": 1, "-L": 1},
}
# Programs in whose code safe characters and spaces cannot run anything.
_SAFE_WITH_SPACES = frozenset({"python", "node", "nodejs", "jq", *_AWKS})
_FILTER_FIX = {
    **dict.fromkeys(_AWKS, "put it in the environment: `V=@ awk '… ENVIRON[\"V\"] …'`"),
    "jq": "pass it as an argument: `jq --arg v @ '… $v …'`",
}

# Code of a program that evaluates a text as code; the text may contain values that the program reads.
_AWK_RUNS = late_pattern(
    r"\bsystem\s*\((?!\s*\"[^\"$]*\"\s*\))|[\w)\]]\s*(?:\"[^\"]*\"\s*)?\|&?\s*getline"
    r"|\bprintf?\b[^;}\n]*\|&?\s*(?:[A-Za-z_$(]|\"\s*(?:\S*/)?(?:ba|da|k|z)?sh\b)"
)
_SCRIPT_RUNS = late_pattern(
    r"\bqx\b|`|%x[({\[]|\beval\s*[(\"$]|\bos\.(?:system|popen)\b|\bshell\s*=\s*True|(?<![.\w])exec\s*\("
    r"|\b(?:execSync|shell_exec|passthru|popen)\s*\(|(?<![.\w])system\s*\(?\s*[^,;)}]+(?:[;)}]|\Z)"
)
CODE_RUNS = {
    **dict.fromkeys(_AWKS, _AWK_RUNS),
    **dict.fromkeys(
        ("sed", "gsed"),
        late_pattern(
            r"(?:\A|[;{\n])\s*[0-9$,]*e(?:[\s;}]|\Z)|(?<!\w)s(\W)(?:(?!\1).)*\1(?:(?!\1).)*\1[gIipmM0-9]*e"
        ),
    ),
    **dict.fromkeys(("python", "pypy", "perl", "ruby", "node", "nodejs", "bun", "php", "lua"), _SCRIPT_RUNS),
}

_CHECK_FIRST = (
    'check the value first: `v=@; case $v in *[!A-Za-z0-9]*) exit 2;; esac`, then use "$v" in double quotes'
)
_SCRIPT_OPTIONS = late_pattern(r"-[A-Za-z]*[oOWXIMrS]|--(?:rcfile|init-file|require|import)")
_SSH_OPTIONS = late_pattern(r"-[A-Za-z0-9]*[BbcDEeFIiJLlmOoPpQRSWw]")
_READ_OPTIONS = late_pattern(r"-[A-Za-z]*[dinNptu]")
_EVALUATING = late_pattern(r"-[A-Za-z]*[aAin]")
_SUBSCRIPT = late_pattern(r"[A-Za-z_]\w*\[[^\]]*\Z")
# Shell variables whose assigned value bash evaluates.
_EVALUATED_NAMES = frozenset({"PS4", "OPTIND", "RANDOM", "SRANDOM", "SECONDS", "LINENO", "HISTCMD"})
_RUN_NAMES = frozenset({"BASH_ENV", "PROMPT_COMMAND"})
# Environment variables that programs run, or from which they load code.
RUN_BY_PROGRAMS = late_pattern(
    r"EDITOR|VISUAL|PAGER|SHELL|BROWSER|\w+_(?:PAGER|EDITOR|ASKPASS|SSH)|MANPAGER|LESS(?:OPEN|CLOSE)|RUBYOPT"
    r"|GIT_(?:SSH_COMMAND|EXTERNAL_DIFF|PROXY_COMMAND|CONFIG\w*)|LD_\w+|PYTHONSTARTUP|NODE_OPTIONS|PERL5OPT"
    r"|MAKEFLAGS|RSYNC_RSH|BASHOPTS|SHELLOPTS"
)
_INTERACTIVE = late_pattern(r"\b(?:ba|da|k|mk|a)?sh\s+(?:-\w+\s+)*-[A-Za-z]*i")
_MAKE_INPUT = late_pattern(r"(?:^|\s)(?:-\w*f|--(?:make)?file)[ =]?(?:-|/dev/stdin|/dev/fd/0)(?:\s|\Z)")
# Programs other than `INTERPRETERS` that run commands in their input: shell commands, and their own commands.
_SHELL_INPUT = words_of("parallel at batch")
_COMMAND_INPUT = words_of("vim vi ex ed gdb tclsh expect sqlite3")
_STANDARD_INPUT = frozenset({"/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})
_NAME_TAKERS = frozenset({"unset", "getopts", "mapfile", "readarray"})
ARITHMETIC_TESTS = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge"})
_NAME_TESTS = frozenset({"-v", "-R"})


# Stands for a program whose name is not fixed.
_UNKNOWN_INTERPRETER = Interpreter(
    (), late_pattern(r"-[A-Za-z]*[ceE]|--(?:command|eval|execute|expression)=?"), _FIXED_NAME, False
)
# Builtins and programs that evaluate some of their words. Most commands contain none of these.
EVALUATORS = frozenset(INTERPRETERS) | {"git"} | frozenset(FILTERS) | _NAME_TAKERS | DECLARERS
EVALUATORS |= (
    _SHELL_INPUT
    | _COMMAND_INPUT
    | words_of("eval trap let [[ read printf watch compgen complete source . bind fc enable hash -v -R")
)
# Programs with an option that runs a command, given as one word; with their options whose argument is the
# next word.
_COMMAND_OPTIONS = {
    "tar": late_pattern(r"-?[A-Za-z]*[bCfFgHIKLNTVX]|--(?:file|directory|exclude|exclude-from|files-from)"),
    "sort": late_pattern(r"-[A-Za-z]*[kStTo]|--(?:output|key|field-separator|temporary-directory)"),
    "rsync": late_pattern(r"-[A-Za-z]*[efMTB]|--(?:(?:ex|in)clude(?:-from)?|files-from|filter|log-file)"),
    "zip": late_pattern(r"-[A-Za-z]*[bnPtxiOs]|--(?:out|exclude|include|temp-path)"),
    "man": late_pattern(r"-[LMSsmEe]|--(?:locale|manpath|sections|systems|encoding|extension)"),
    **dict.fromkeys(("ssh", "scp", "sftp"), _SSH_OPTIONS),
}
# Programs that run a command that is given as several words.
_RUNS_SEVERAL_WORDS = frozenset(_COMMAND_OPTIONS) | {"find"}
# Programs that run the command in their arguments.
RUNNERS = (
    frozenset(PREFIXES) | frozenset(OPERANDS_BEFORE_COMMAND) | words_of("find docker podman kubectl script")
)
EVALUATORS |= RUNNERS | _RUNS_SEVERAL_WORDS


def interpreter_hazard(program: str, reader: Interpreter) -> Hazard:
    name = "a command whose name is not fixed" if HOLE in program else f"`{program}`"
    return code_hazard(
        f"is part of code that {name} reads",
        reader.fix,
        plain=" " if program in _SAFE_WITH_SPACES else "",
        is_shell=reader.fix in (_SHELL_FIX, _FIXED, _FIXED_NAME, MAKE_FIX),
    )


def argument_hazard(words: Sequence[str], prefix: str, *, is_first: bool, is_array: bool) -> Hazard | None:
    """The hazard of a variable after `prefix` in the word that follows `words`; None if there is none.

    words: without quotes, with a NUL where a word is not fixed. is_first: the word may still be an
    assignment or the command's name. is_array: inside `a=( … )`.
    """
    if is_array:
        return IN_SUBSCRIPT if re.match(r"\[[^\]]*\Z", prefix) else None
    if is_first:
        return IN_SUBSCRIPT if _SUBSCRIPT.match(prefix) else None
    at = command_at(words)
    assignment = ASSIGNMENT.match(prefix)
    if assignment is not None and at >= len(words):  # after `env`
        name = re.split(r"\W", assignment[0])[0]
        return AS_NUMBER if name == "PS4" else assignment_hazard("", name)
    if "env" in map(program_of, words) and _is_code(INTERPRETERS["env"], words[1:], prefix):
        return interpreter_hazard("env", INTERPRETERS["env"])
    if word_at(words, at) == "sqlite3" and operands_of(words[at + 1 :], _SCRIPT_OPTIONS):
        return interpreter_hazard("sqlite3", INTERPRETERS["sqlite3"])
    hazard = _builtin(word_at(words, at), words[at + 1 :], prefix)
    if hazard is not None:
        return hazard
    for index, word in enumerate(words):
        program = program_of(word)
        rest = words[index + 1 :]
        reader = _UNKNOWN_INTERPRETER if index == at and HOLE in program else INTERPRETERS.get(program)
        is_run = index == at or any(program_of(other) in RUNNERS for other in words[:index])
        if reader is not None and (reader.has_script or is_run) and _is_code(reader, rest, prefix):
            return interpreter_hazard(program, reader)
        if program == "ssh" and is_run and operands_of(rest, _SSH_OPTIONS):
            return REMOTE
        if program == "git" and is_run and _is_git_code(rest, prefix):
            return IN_GIT_PULL if _git_command(rest) == "pull" and not prefix else IN_GIT
        if is_run and not prefix and _may_be_command_option(program, rest):
            return AS_OPTION
        if program in ("make", "gmake") and index == at and "=" in prefix:
            return IN_MAKE
        if program in FILTERS and _is_filter_program(program, rest, prefix):
            help = _FILTER_FIX.get(program, _CHECK_FIRST)
            severity = "warning" if program == "jq" else "error"  # jq cannot start a program
            plain = " " if program in _SAFE_WITH_SPACES else ""
            return code_hazard(f"is part of the program that `{program}` runs", help, severity, plain)
    return None


def _builtin(name: str, words: Sequence[str], prefix: str) -> Hazard | None:
    """The hazard for a builtin of the shell; `words` are the words after its name."""
    before = words[-1] if words else ""
    match name:
        case "eval" | "watch":
            return EVALUATED
        case "compgen" | "complete" | "bind" | "fc":
            return AS_COMMAND
        case "enable" | "hash" if words:
            return COMMAND
        case "trap" if all(word.startswith("-") for word in words):
            return EVALUATED
        case "let":
            return IN_ARITHMETIC
        case "read" if not _READ_OPTIONS.fullmatch(before):
            return AS_NAME
        case "printf" if before == "-v" and len(words) == 1:
            return AS_NAME
        case "printf" if not words and prefix in ("", "-"):
            return AS_FORMAT
        case "[" | "test" if before in _NAME_TESTS:
            return IN_NAME_TEST
        case _ if name in _NAME_TAKERS:
            return AS_NAME
        case _ if name in DECLARERS and not prefix.startswith("-"):
            if "=" not in prefix:
                return IN_SUBSCRIPT if _SUBSCRIPT.match(prefix) else AS_NAME
            return AS_NUMBER if any(map(_EVALUATING.match, words)) else None
    return None


def may_be_command_options(program: str, words: Sequence[str]) -> bool:
    """Whether additional words after `words` may make a program run a command."""
    if program != "git":
        return program in _RUNS_SEVERAL_WORDS
    command = _git_command(words)
    if command in _GIT_CODE or command in _GIT_WRITERS:
        return "--" not in words or command == "pull"
    return not command


def _may_be_command_option(program: str, words: Sequence[str]) -> bool:
    """Whether one word after `words` may be an option that makes a program run a command."""
    if "--" in words:
        return False
    if program == "git":
        command = _git_command(words)
        return command in _GIT_CODE and not _GIT_ARGUMENTS.get(command, NO_OPTION).fullmatch(words[-1])
    if program not in _COMMAND_OPTIONS:
        return False
    return not (words and _COMMAND_OPTIONS[program].fullmatch(words[-1]))


def _is_code(reader: Interpreter, words: Sequence[str], prefix: str) -> bool:
    """Whether the word that begins with `prefix` after `words` is code for a program."""
    if words and reader.option.fullmatch(words[-1]):
        before = words[:-1]
    elif prefix.startswith("-") and reader.option.match(prefix):
        before = words
    else:
        return False
    # In `python x.py -c …` and `python -m pytest -c …` the option belongs to the script or module.
    return not reader.has_script or ("-m" not in before and not operands_of(before, _SCRIPT_OPTIONS))


def _git_command(words: Sequence[str]) -> str:
    """The subcommand of `git` in the words after it; empty if there is none."""
    return next(iter(operands_of(words, _GIT_OPTIONS)), "")


def _is_git_code(words: Sequence[str], prefix: str) -> bool:
    """Whether a word after `words` of git is a setting, or a command that git runs."""
    before = words[-1] if words else ""
    operands = operands_of(words, _GIT_OPTIONS)
    command = _git_command(words)
    if command == "config":
        return not operands[1:] or not _GIT_DATA.match(f"{operands[1]}=")
    if before == "-c" and (not command or command == "clone"):
        return not _GIT_DATA.match(prefix)
    # `git pull` passes the words after its `--` to `git fetch` without the `--`.
    if not prefix and command in ("", "pull") and not _GIT_OPTIONS.fullmatch(before):
        return True
    if operands[:2] in (["bisect", "run"], ["submodule", "foreach"]):
        return True
    option = _GIT_CODE.get(command)
    return option is not None and (option.fullmatch(before) or option.match(prefix)) is not None


def _is_filter_program(program: str, words: Sequence[str], prefix: str) -> bool:
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


def is_evaluated(name: str, before: str, *, is_declared: bool) -> bool:
    """Whether bash evaluates a value assigned to a shell variable, given the text `before` the assignment.

    is_declared: the assignment is an argument of `declare` or a similar builtin, which reads `(…)` in the
    value as a list if the variable is a list.
    """
    if name in _EVALUATED_NAMES:
        return True
    declarers = "|".join(sorted(DECLARERS))
    found = re.search(rf"\b(?:{declarers})\s+-[A-Za-z]*[in].*\b{name}\b", before)
    if found is None and is_declared:
        lists = rf"\b{name}(?:\[[^\]]*\])?\+?=\(|\b{name}\[|\b(?:mapfile|readarray)\b.*\b{name}\b"
        found = re.search(rf"{lists}|\b(?:{declarers}|read)\s+-[A-Za-z]*[aA].*\b{name}\b", before)
    return found is not None


def evaluated_names(text: str) -> frozenset[str]:
    """The shell variables whose assigned value bash evaluates or runs in `text`."""
    return _EVALUATED_NAMES | _run_names(text)


@lru_cache(64)
def _run_names(text: str) -> frozenset[str]:
    # Only an interactive shell reads `ENV`, which is also a common name for other purposes.
    return _RUN_NAMES | {"ENV"} if _INTERACTIVE.search(text) else _RUN_NAMES


def assignment_hazard(text: str, name: str) -> Hazard | None:
    """The hazard of the shell variable `name` if a program that `text` starts runs its value; None
    otherwise.
    """
    if name in _run_names(text):
        return RUN_BY_SHELL
    return RUN_BY_PROGRAM if RUN_BY_PROGRAMS.fullmatch(name) else None


def condition_hazard(words: Sequence[str]) -> Hazard | None:
    """The hazard of variables in a `[[ … ]]` condition of these words; None if there is none."""
    if not ARITHMETIC_TESTS.isdisjoint(words):
        return IN_ARITHMETIC_TEST
    if not _NAME_TESTS.isdisjoint(words):
        return IN_NAME_TEST
    return None


def input_hazard(words: Sequence[str]) -> Hazard | None:
    """The hazard of a variable in a here-document or here-string of a command; None if there is none."""
    at = command_at(words)
    for index in range(at, len(words)) if words and program_of(words[0]) in RUNNERS else (at,):
        hazard = _input_hazard(word_at(words, index), words[index + 1 :])
        if hazard is not None:
            return hazard
    return None


def _input_hazard(name: str, words: Sequence[str]) -> Hazard | None:
    program = program_of(name)
    rest = [word for word in words if word != "-"]
    reader = INTERPRETERS["sh"] if HOLE in program else INTERPRETERS.get(program)
    if program in ("source", ".") and rest[:1] and rest[0] in _STANDARD_INPUT:
        return EVALUATED
    if program in ("make", "gmake"):
        return IN_MAKE if _MAKE_INPUT.search(" ".join(words)) else None
    if program in _SHELL_INPUT:
        return EVALUATED if program != "parallel" or not operands_of(rest, _SCRIPT_OPTIONS) else None
    if program in _COMMAND_INPUT:
        return AS_COMMAND
    if reader is not None and reader.reads_input:
        operands = operands_of(rest, _SCRIPT_OPTIONS)
        is_code = not reader.has_script or "-s" in rest or not operands or operands[0] in _STANDARD_INPUT
        # With `-c` or a similar option, the code is in the option, and the input is data.
        if is_code and not any(map(reader.option.fullmatch, rest)):
            return interpreter_hazard(program, reader)
    if program == "ssh" and not operands_of(rest, _SSH_OPTIONS)[1:]:
        return REMOTE
    return None
