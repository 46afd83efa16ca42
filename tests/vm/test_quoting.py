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
many = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def test_a_word_is_always_in_quotes() -> None:
    """What is harmless alone may be a keyword, a number before `>`, a tilde where it stands."""
    assert [shell_word(text) for text in ("if", "2", "~", "", "it's")] == [
        "'if'",
        "'2'",
        "'~'",
        "''",
        "'it'\\''s'",
    ]


def test_double_quotes_are_left_and_entered_again() -> None:
    """So nothing before the value can take a part of it."""
    assert '"$X' + shell_double("Y") + '"' == '"$X"\'Y\'""'


def test_heredoc_lines_cannot_be_a_delimiter() -> None:
    """Each line begins with an expansion of nothing."""
    assert shell_heredoc("EOF\n$x`\\") == "${0+}EOF\n${0+}\\$x\\`\\\\"


@SHELL
@many
@given(values=st.lists(VALUES, min_size=1, max_size=4))
def test_words_come_back(shell: str, values: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    """Each value is one argument, byte for byte."""
    command = f"{PRINTF} '%s\\0' " + " ".join(map(shell_word, values))
    done = run(shell, command, tmp_path_factory.getbasetemp())
    assert done.stdout == "".join(value + "\0" for value in values).encode()


@SHELL
@many
@given(left=VALUES, right=VALUES)
def test_values_glued_in_quotes_come_back(
    shell: str, left: str, right: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Inside single and double quotes, beside each other and beside expansions."""
    command = (
        f"{PRINTF} '%s\\0' 'a{shell_single(left)}{shell_single(right)}b' "
        f'"a{shell_double(left)}$X{shell_double(right)}b"'
    )
    done = run(shell, command, tmp_path_factory.getbasetemp())
    assert done.stdout == f"a{left}{right}b\0a{left}ex  ex*{right}b\0".encode()


@SHELL
@many
@given(value=VALUES)
def test_heredoc_text_comes_back(shell: str, value: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whole lines of a value, with tabs that `<<-` would strip."""
    command = f"cat <<-EOF\n{shell_heredoc(value)}\n\tEOF"
    assert run(shell, command, tmp_path_factory.getbasetemp()).stdout == f"{value}\n".encode()


@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
@pytest.mark.parametrize("quote", [shell_word, shell_single, shell_double, shell_heredoc])
def test_what_no_program_can_be_given_is_a_fault(quote: object, text: str) -> None:
    """A NUL ends an argument, half a surrogate pair has no bytes."""
    with pytest.raises(PrimitiveFault) as caught:
        quote(text)  # type: ignore[operator]
    assert caught.value.kind == "unsendable-text"


@pytest.mark.parametrize("number", [0, 7, -3, 10**30, "0", "12"])
def test_a_number_is_its_digits(number: object) -> None:
    """They mean the same in quotes, in arithmetic and in a subscript."""
    assert shell_number(number) == str(number)


@pytest.mark.parametrize("value", ["", "a", "1+1", "a[$(x)]", "1\n", "-", "--1", "٣", 1.5, True, None, ()])
def test_what_is_no_whole_number_is_a_fault(value: object) -> None:
    """So that nothing else can come to stand where it cannot be quoted."""
    with pytest.raises(PrimitiveFault) as caught:
        shell_number(value)
    assert caught.value.kind == "not-a-number"


def test_undecodable_bytes_of_the_environment_go_back(tmp_path: Path) -> None:
    """Python's stand-ins for bytes that are no UTF-8 become these bytes again."""
    command = "printf %s " + shell_word("a\udcffb")
    done = subprocess.run(["sh", "-c", command], capture_output=True, check=True)
    assert done.stdout == b"a\xffb"


@pytest.mark.parametrize("text", ["", "EPIC-12", ".loops/runs/a_b/x.json", "a@b:1,2=3%4+5"])
def test_plain_text_may_be_code(text: str) -> None:
    """As it is."""
    assert shell_plain(text, "") == text


@pytest.mark.parametrize(
    "text", ["a b", "a\n", "$x", "`", "(", "'", '"', "\\", ";", "[", "é", "\0", "{", "#"]
)
def test_other_text_is_no_code(text: str) -> None:
    """Spaces only where they are allowed."""
    assert shell_plain("a b", " ") == "a b"
    with pytest.raises(PrimitiveFault, match="part of code"):
        shell_plain(text, "")
