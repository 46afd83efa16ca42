"""Random shell programs with variables in every quoting position, and their expected output.

A builder writes template text together with the arguments that the program `printf` must receive.
Used by `test_shell_contexts`, which runs the programs under real shells.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from hypothesis import strategies as st

from llc.frontend.template.nodes import QUOTING_PRIMITIVES, Literal, Template, Variable
from llc.vm.primitives.handlers import HANDLERS

# By path, so that no shell uses its builtin.
PRINTF = shutil.which("printf") or "/usr/bin/printf"
# One path for each distinct shell; `sh` is often the same as another one.
SHELLS = list(
    {os.path.realpath(path): path for name in ("bash", "dash", "sh") if (path := shutil.which(name))}
)
X = "ex  ex*"

_FRAGMENTS = (
    "'", '"', "`", "\\", "$", "$(", ")", "(", "${", "}", "$X", "$((1+1))", "#", " #", "\n", ";", ";;",
    "&", "|", "!", " ", "  ", "\t", "~", "~/", "*", "?", "[a]", "{a,b}", "-", "-n", "--", "=", "x=1",
    "[0]=", "<", ">", "<<EOF", "EOF", "\nEOF\n", "\nE2\n", "esac", "done", "if", "%s", "\r", "\x01",
    "\x7f", "\x1b[0m", "é", "☃", "𝕏", "\u2028", "\ufeff", "$(touch pwned)", "`touch pwned`",
    "';touch pwned;'", '";touch pwned;"', "\ntouch pwned\n", "a[$(touch pwned)]", ")\ntouch pwned\n(",
    "\\\n", "\\'", '\\"', "${0+}", "${IFS}", "a", "b c", "0", "5",
)  # fmt: skip
_CHARACTERS = st.characters(exclude_characters="\0", exclude_categories=("Cs",))
VALUES = st.lists(st.one_of(st.sampled_from(_FRAGMENTS), st.text(_CHARACTERS, max_size=4)), max_size=6).map(
    "".join
)

# Texts and their meaning in a shell.
_IN_DOUBLE = (
    ("'", "'"), ('\\"', '"'), ("\\$ ", "$ "), ("\\\\", "\\"), ("\\`", "`"), (" # ", " # "), ("$ ", "$ "),
    ("\\a", "\\a"), ("(", "("), (")", ")"), (";", ";"), ("\n", "\n"), ("\\\n", ""), ("'s", "'s"),
)  # fmt: skip
_EXPANSIONS = (
    ("$X", X), ("${X}", X), ("${NO:-d e}", "d e"), ("$((1+(2*3)))", "7"), ("`echo z`", "z"),
    ("${#X}", str(len(X))), ("${X#ex}", X[2:]), ("`echo 'q)'`", "q)"),
)  # fmt: skip
_IN_HEREDOC = (
    ("'", "'"), ('"', '"'), ("\\$ ", "$ "), ("\\\\", "\\"), ("E", "E"), ("${X}", X), ("$((1+1))", "2"),
    ("$(echo 'c d')", "c d"), (" ", " "), ("#", "#"), ("\\a", "\\a"), ("EOF ", "EOF "), (")", ")"),
)  # fmt: skip
_STATEMENTS = (
    "command", "assign", "for", "case", "function", "heredoc", "comment", "pipe", "environment", "while",
)  # fmt: skip


def filled(template: Template, values: dict[str, str]) -> str:
    """The command of a template for values of `captured.<name>.output`."""
    return _filled(template, lambda variable: values[variable.path[0]])


def filled_with(template: Template, value: str) -> str:
    """The command of a template in which every variable has the same value."""
    return _filled(template, lambda variable: value)


def _filled(template: Template, value_of: Callable[[Variable], str]) -> str:
    parts = []
    for part in template.parts:
        match part:
            case Literal(text):
                parts.append(text)
            case Variable():
                value = value_of(part)
                quote = QUOTING_PRIMITIVES.get(part.quoting)
                parts.append(HANDLERS[quote](value, *part.around) if quote else value)
    return "".join(parts)


def run(shell: str, command: str, folder: Path) -> subprocess.CompletedProcess[bytes]:
    """Run a command in an empty folder."""
    environment = {"PATH": os.environ["PATH"], "X": X, "LC_ALL": "C.UTF-8"}
    return subprocess.run(
        [shell, "-c", command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=30,
        check=False,
    )


class Writer:
    """Generator of program parts; `values` collects the values of their variables."""

    def __init__(self, draw: st.DrawFn, is_bash: bool) -> None:
        self.draw = draw
        self.is_bash = is_bash
        self.values: dict[str, str] = {}
        self.functions = 0

    def pick(self, *options: str) -> str:
        return self.draw(st.sampled_from(options))

    def hole(self) -> tuple[str, str]:
        name = f"v{len(self.values)}"
        self.values[name] = value = self.draw(VALUES)
        return f"${{captured.{name}.output}}", value

    # --- words: template text and the expected argument -----------------------------------

    def word(self, depth: int = 0) -> tuple[str, str]:
        parts = [self.segment(depth) for _ in range(self.draw(st.integers(1, 3)))]
        return "".join(text for text, _ in parts), "".join(value for _, value in parts)

    def segment(self, depth: int) -> tuple[str, str]:
        kinds = ["hole", "hole", "plain", "escape", "single", "double"]
        match self.pick(*kinds, *(["ansi"] if self.is_bash else [])):
            case "hole":
                return self.hole()
            case "plain":
                text = self.pick("a", "x=", "-n", "b/c", "%", ",", "@", ":", "1", "it", "a#b", "^", "+")
                return text, text
            case "escape":
                text = self.pick("'", '"', "$", " ", "\\", "`", "#", "~", "*", "(", ";", "a")
                # `$` directly before a variable would be read as the escape `$${` of the template.
                return "\\" + text + ("''" if text == "$" else ""), text
            case "ansi":
                return "$'\\t(\"\\\\'", '\t("\\'
            case "single":
                return self.quoted("'", ('"', "$X", "`", "\\", " # ", "$(", "\n", ")", "(", ";", "\\$", "$"))
        return self.double(depth)

    def quoted(self, quote: str, literals: tuple[str, ...]) -> tuple[str, str]:
        texts, values = [quote], []
        for _ in range(self.draw(st.integers(0, 3))):
            if self.draw(st.booleans()):
                text, value = self.hole()
            else:
                text = value = self.pick(*literals)
                if text.endswith("$"):
                    text = value = text + " "
            texts.append(text)
            values.append(value)
        return "".join([*texts, quote]), "".join(values)

    def double(self, depth: int) -> tuple[str, str]:
        texts, values = ['"'], []
        for _ in range(self.draw(st.integers(0, 4))):
            match self.pick("hole", "hole", "literal", "expansion", "command"):
                case "hole":
                    text, value = self.hole()
                case "literal":
                    text, value = self.draw(st.sampled_from(_IN_DOUBLE))
                case "command" if depth < 3:
                    inner, got = self.word(depth + 1)
                    text, value = self.substitution(inner), got + "."
                case _:
                    text, value = self.draw(st.sampled_from(_EXPANSIONS))
            texts.append(text)
            values.append(value)
        return "".join([*texts, '"']), "".join(values)

    def substitution(self, word: str) -> str:
        command = f"{PRINTF} %s. {word}"
        return self.pick(
            f"$({command})",
            f"$( {command}\n)",
            f"$(if true; then {command}; fi)",
            f"$(case x in (y) echo no;; (x) {command};; esac)",
            f"$( # a comment\n{command})",
            f"$( ( {command} ) )",
            f"$({command} | cat)",
        )

    # --- statements: template text and the expected output --------------------------------

    def statements(self, depth: int = 0) -> tuple[str, list[str]]:
        parts = [self.statement(depth) for _ in range(self.draw(st.integers(1, 3 if depth == 0 else 2)))]
        return "\n".join(text for text, _ in parts), [value for _, values in parts for value in values]

    def show(self, *words: str) -> str:
        return f"{PRINTF} '%s\\0' {' '.join(words)}"

    def statement(self, depth: int) -> tuple[str, list[str]]:
        kinds = [*_STATEMENTS]
        if depth < 2:
            kinds += ["subshell", "group", "if"]
        if self.is_bash:
            kinds += ["array", "test", "here-string", "process", "select-like"]
        kind = self.pick(*kinds)
        if kind in ("subshell", "group", "if"):
            inner, printed = self.statements(depth + 1)
            text, value = self.word()
            opening, closing = {
                "subshell": ("(", ")"),
                "group": ("{", "}"),
                "if": (f"if [ {text} = {text} ]; then", "fi"),
            }[kind]
            return f"{opening}\n{inner}\n{closing}", printed
        text, value = self.word()
        again = self.show('"$v"')
        match kind:
            case "assign":
                return f"v={text}; {again}", [value]
            case "for":
                more, other = self.word()
                return f"for v in {text} \\\n  {more}; do {again}; done", [value, other]
            case "case":
                same = self.show(text)
                return f"case {text} in\n  {text}) {same};;\n  *) exit 9;;\nesac", [value]
            case "function":
                self.functions += 1
                name = f"f{self.functions}"
                more, other = self.word()
                shown = self.show('"$1"', more)
                return f"{name}() {{ {shown}; }}; {name} {text}", [value, other]
            case "heredoc":
                return self.heredoc(text, value)
            case "comment":
                return f"# it's {text.splitlines()[0] if text else ''} \" (\n{self.show(text)} # '", [value]
            case "pipe":
                return f"{self.show(text)} 2>&1 | cat && true", [value]
            case "environment":
                return f'V={text} sh -c \'{PRINTF} "%s\\0" "$V"\'', [value]
            case "while":
                return f"while {self.show(text)}; do break; done", [value]
            case "array":
                more, other = self.word()
                all_of_it = self.show('"${v[@]}"')
                return f"v=({text} # one\n {more}); {all_of_it}", [value, other]
            case "test":
                return f"[[ -n x && ( a{text} == a{text} ) ]] && {self.show(text)}", [value]
            case "here-string":
                return f"cat <<< {text}; {self.show()}", [value + "\n"]
            case "process":
                return f"cat <({PRINTF} %s {text}); {self.show()}", [value]
            case "select-like":
                return f"for ((i=0; i<1; i++)); do {self.show(text)}; done", [value]
        return self.show(text), [value]

    def heredoc(self, word: str, value: str) -> tuple[str, list[str]]:
        lines, expected = [], []
        strips = self.draw(st.booleans())
        for _ in range(self.draw(st.integers(0, 3))):
            parts = [
                self.hole() if self.draw(st.booleans()) else self.draw(st.sampled_from(_IN_HEREDOC))
                for _ in range(self.draw(st.integers(0, 3)))
            ]
            indent = "\t\t" if strips else ""
            lines.append(indent + "".join(text for text, _ in parts))
            expected.append("".join(got for _, got in parts))
        ends = [line for line in lines if line.lstrip("\t") == "EOF"]
        if ends:
            return self.show(word), [value]
        operator = "<<-" if strips else "<<"
        first = self.show(word)
        body = "".join(line + "\n" for line in lines)
        printed = "".join(line + "\n" for line in expected)
        return f"{first}; cat {operator}EOF\n{body}EOF\n{self.show()}", [value, printed]


@st.composite
def programs(draw: st.DrawFn, is_bash: bool) -> tuple[str, dict[str, str], list[str]]:
    """A template, the values of its variables, and the expected output parts, each terminated by NUL."""
    writer = Writer(draw, is_bash)
    text, printed = writer.statements()
    return text, writer.values, printed


# --- random token sequences -------------------------------------------------------------------

_TOKENS = (
    "'", '"', "`", "\\", "$", "$(", ")", "(", "${", "}", "${x:-", "$((", "))", "#", " #", "\n", "\n", ";",
    ";;", " ", " ", "cat <<EOF\n", "cat <<-EOF\n", "\nEOF\n", "EOF\n", "cat <<'EOF'\n",
    "cat <<EOF <<E2\n", "\nE2\n", "case x in ", " in ", " esac", "a)", "(a)", "[[ ", " ]]", "$'", '$"',
    "x=", "a=(", "{ ", "for x ", " do ", " done", "if ", " then ", " fi", "&&", "|", "||", "&", ">", "<(",
    "<<<", "x", "echo ", "f() ", "$x", "1", "-gt", "==", "=~", "!", "~", "*", "\\\n", "function g ",
    "while ", "2>&1", "+=", "[", "]", "((", "$[", "\t", "time ", "select x ", "it's", '"a"', "'b'",
    "$(echo c)", "`echo d`", "${y:-e}", "$((1+2))", " # it's\n", ": ", "declare ", "local x=",
)  # fmt: skip
_PAYLOADS = (
    "$(:>pwned)", "`:>pwned`", "';:>pwned;'", '";:>pwned;"', "\n:>pwned\n", ";:>pwned;#", ")\n:>pwned\n(",
    "EOF\n:>pwned\n", "\nEOF\n:>pwned\n", "a[$(:>pwned)]", "}\n:>pwned\n", "';:>pwned #", '"$(:>pwned)',
    "\\", "'", '"', "\\'\n:>pwned\n", "))\n:>pwned\n", ";;\n:>pwned\n", "esac\n:>pwned\n",
    "'\"`$(:>pwned)`", "*)\n:>pwned;;", "\\\n", "\n", "", "$", "#", "<<X", "`", "(", ")", "]]\n:>pwned\n",
    "\n)\n:>pwned\n", "\nE2\n:>pwned\n", "')\n:>pwned\n", '")\n:>pwned\n', "($(:>pwned))",
)  # fmt: skip


@st.composite
def token_sequences(draw: st.DrawFn) -> tuple[str, dict[str, str]]:
    """Shell tokens in random order with variables and hostile values."""
    tokens = draw(st.lists(st.sampled_from(_TOKENS), min_size=1, max_size=12))
    values = draw(st.lists(st.sampled_from(_PAYLOADS), min_size=1, max_size=3))
    for index in range(len(values)):
        tokens.insert(draw(st.integers(0, len(tokens))), f"${{captured.v{index}.output}}")
    opening, closing = draw(
        st.sampled_from(
            [("", ""), ('"$(', ')"'), ("x=$(", ")"), ("( ", ")"), ('echo "', '"'), ("echo '", "'")]
        )
    )
    text = opening + "".join(tokens) + closing
    return text, {f"v{index}": value for index, value in enumerate(values)}
