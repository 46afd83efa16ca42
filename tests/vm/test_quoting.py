"""Shell quoting: a shell reads the quoted text back unchanged."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from shell_programs import PRINTF, SHELLS, VALUES, run

from llc.vm.primitives.shell_words import (
    shell_double,
    shell_heredoc,
    shell_number,
    shell_plain,
    shell_single,
    shell_word,
)
from llc.vm.values.faults import PrimitiveFault

SHELL = pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: Path(shell).name)
LAWS = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def test_word_is_always_quoted() -> None:
    """A harmless word may be a keyword, a number before `>`, or a tilde in its position."""
    assert [shell_word(text) for text in ("if", "2", "~", "", "it's")] == [
        "'if'",
        "'2'",
        "'~'",
        "''",
        "'it'\\''s'",
    ]


def test_value_in_double_quotes_closes_and_reopens_them() -> None:
    """Preceding text cannot absorb a part of the value."""
    assert '"$X' + shell_double("Y") + '"' == '"$X"\'Y\'""'


def test_heredoc_lines_cannot_be_a_delimiter() -> None:
    """Each line starts with an empty expansion."""
    assert shell_heredoc("EOF\n$x`\\") == "${0+}EOF\n${0+}\\$x\\`\\\\"


@SHELL
@LAWS
@given(values=st.lists(VALUES, min_size=1, max_size=4))
def test_words_round_trip(shell: str, values: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    """Each value is one argument, byte for byte."""
    command = f"{PRINTF} '%s\\0' " + " ".join(map(shell_word, values))
    done = run(shell, command, tmp_path_factory.getbasetemp())
    assert done.stdout == "".join(value + "\0" for value in values).encode()


@SHELL
@LAWS
@given(left=VALUES, right=VALUES)
def test_adjacent_values_in_quotes_round_trip(
    shell: str, left: str, right: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Inside single and double quotes, next to each other and to expansions."""
    command = (
        f"{PRINTF} '%s\\0' 'a{shell_single(left)}{shell_single(right)}b' "
        f'"a{shell_double(left)}$X{shell_double(right)}b"'
    )
    done = run(shell, command, tmp_path_factory.getbasetemp())
    assert done.stdout == f"a{left}{right}b\0a{left}ex  ex*{right}b\0".encode()


@SHELL
@LAWS
@given(value=VALUES)
def test_heredoc_text_round_trips(shell: str, value: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Complete lines of a value, with tabs that `<<-` would remove."""
    command = f"cat <<-EOF\n{shell_heredoc(value)}\n\tEOF"
    assert run(shell, command, tmp_path_factory.getbasetemp()).stdout == f"{value}\n".encode()


@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
@pytest.mark.parametrize("quote", [shell_word, shell_single, shell_double, shell_heredoc])
def test_invalid_argument_is_a_fault(quote: object, text: str) -> None:
    """A NUL ends an argument, a lone surrogate has no bytes."""
    with pytest.raises(PrimitiveFault) as caught:
        quote(text)  # type: ignore[operator]
    assert caught.value.kind == "unsendable-text"


@pytest.mark.parametrize("number", [0, 7, -3, 10**30, "0", "12"])
def test_number_is_not_quoted(number: object) -> None:
    """Digits mean the same in quotes, in arithmetic and in a subscript."""
    assert shell_number(number) == str(number)


@pytest.mark.parametrize("value", ["", "a", "1+1", "a[$(x)]", "1\n", "-", "--1", "٣", 1.5, True, None, ()])
def test_non_integer_is_a_fault(value: object) -> None:
    """Nothing else may be in a position where quoting is impossible."""
    with pytest.raises(PrimitiveFault) as caught:
        shell_number(value)
    assert caught.value.kind == "not-a-number"


def test_undecodable_bytes_of_the_environment_round_trip(tmp_path: Path) -> None:
    """The surrogates that Python uses for non-UTF-8 bytes become these bytes again."""
    command = "printf %s " + shell_word("a\udcffb")
    done = subprocess.run(["sh", "-c", command], capture_output=True, check=True)
    assert done.stdout == b"a\xffb"


@pytest.mark.parametrize("text", ["", "EPIC-12", ".loops/runs/a_b/x.json", "a@b:1,2=3%4+5"])
def test_safe_text_is_unquoted_code(text: str) -> None:
    assert shell_plain(text, "") == text


@pytest.mark.parametrize(
    "text", ["a b", "a\n", "$x", "`", "(", "'", '"', "\\", ";", "[", "é", "\0", "{", "#"]
)
def test_other_text_as_code_is_a_fault(text: str) -> None:
    """Spaces are allowed only in some positions."""
    assert shell_plain("a b", " ") == "a b"
    with pytest.raises(PrimitiveFault, match="part of code"):
        shell_plain(text, "")
