"""`paradigm: natural`: pinned text is compiled, other text is an error; no model is called."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llc.frontend.compile import Compiled, compile_file, compile_text
from llc.frontend.loop.fsm_printer import print_fsm
from llc.frontend.loop.natural import LOCK, Pin, key_of, pins_in, print_lock
from llc.frontend.loop.paradigms import NaturalSpec
from llc.frontend.loop.reader import read_loop
from llc.frontend.source.files import read_source
from llc.ir.diagnostics import CompileError, Diagnostic, render_all
from llc.runtime.project import image_cache
from llc.vm.code.emit import emit

WORDS = 'paradigm: natural\ndescription: "Fix all type errors"\ntools: ["/ll:fix"]\n'
MADE = """paradigm: convergence
name: "fewer-errors"
check: "mypy src | wc -l"
toward: 0
using: "/ll:fix"
max_iterations: 9
"""


@pytest.fixture
def loops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".loops").mkdir()
    return Path(".loops")


def write(loops: Path, words: str = WORDS, made: str = MADE, of: str | None = None) -> str:
    """A loop in words, and a lock file in which `made` is pinned for it, or for the words `of`."""
    path = loops / "words.yaml"
    path.write_text(of or words)
    spec, _, _ = read_loop(read_source(str(path)))
    assert isinstance(spec, NaturalSpec)
    (loops / LOCK).write_text(print_lock([Pin(key_of(spec), "words", "m", made)]))
    path.write_text(words)
    return str(path)


def refused(path: str) -> list[Diagnostic]:
    with pytest.raises(CompileError) as caught:
        compile_file(path)
    return caught.value.diagnostics


def fsm(compiled: Compiled) -> str:
    assert compiled.loop is not None
    return print_fsm(compiled.loop)


def test_what_is_pinned_is_compiled(loops: Path) -> None:
    """As if it had been written so, under the name that the model found, with the author's words."""
    compiled = compile_file(write(loops))
    plain = compile_text(MADE)
    assert compiled.program.name == "fewer-errors"
    assert compiled.loop is not None
    assert plain.loop is not None
    assert compiled.loop.states == plain.loop.states
    assert 'description: "Fix all type errors"' in fsm(compiled)


def test_what_the_author_sets_wins(loops: Path) -> None:
    """Name, limits and other settings; what they leave open is the model's."""
    words = WORDS + "name: mine\ntimeout: 60\nmax_iterations: 3\n"
    found = compile_file(write(loops, words)).loop
    assert found is not None
    assert (found.name, found.timeout, found.max_iterations) == ("mine", 60, 3)
    found = compile_file(write(loops)).loop
    assert found is not None
    assert found.max_iterations == 9


def test_other_words_are_not_pinned(loops: Path) -> None:
    """What the description or the tools say decides; white space, settings and comments do not."""
    other = WORDS.replace("type errors", "lint errors")
    (diagnostic,) = refused(write(loops, other, of=WORDS))
    assert diagnostic.id == "not-pinned"
    assert "llc create --pin .loops/words.yaml" in (diagnostic.help or "")
    assert refused(write(loops, WORDS.replace("/ll:fix", "/ll:mend"), of=WORDS))[0].id == "not-pinned"
    same = WORDS.replace("Fix all", "Fix\n  all") + "# why\nbackoff: 1\n"
    assert compile_file(write(loops, same, of=WORDS)).loop is not None
    (loops / LOCK).unlink()
    assert refused(".loops/words.yaml")[0].id == "not-pinned"
    with pytest.raises(CompileError, match="has no pinned loop"):
        compile_text(WORDS)


def test_a_mistake_in_a_pin_has_its_place_in_the_lock_file(loops: Path) -> None:
    """The same findings as for a loop in a file, where they stand."""
    path = write(loops, made=MADE.replace("/ll:fix", "echo ${context.nope}").replace("toward: 0", "towrd: 0"))
    found = {diagnostic.id: diagnostic for diagnostic in refused(path)}
    span = found["unknown-key"].span
    assert span is not None
    assert span.path == ".loops/natural.lock"
    assert (loops / LOCK).read_text().split("\n")[span.line - 1][span.column - 1 :].startswith("towrd")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1, 2",
        "version: 2\npins: {}\n",
        "just words\n",
        "version: 1\npins: [sha256-1]\n",
        "version: 1\npins: {sha256-1: 5}\n",
        "<<<<<<< HEAD\nversion: 1\n=======\nversion: 1\npins: {}\n>>>>>>> theirs\n",
        "version: 1\npins: {sha256-1: {yaml: [1]}}\n",
        "version: 1\nversion: 1\n",
        "\x00",
    ],
)
def test_a_lock_file_that_is_none_is_refused(loops: Path, text: str) -> None:
    """Whatever is in it, with its path."""
    path = write(loops)
    (loops / LOCK).write_text(text)
    diagnostics = refused(path)
    assert all(diagnostic.is_error for diagnostic in diagnostics)
    assert any(".loops/natural.lock" in f"{one.message} {one.span}" for one in diagnostics)


def test_words_in_a_pin_are_refused(loops: Path) -> None:
    """A pin holds no words that would need a pin."""
    assert refused(write(loops, made=WORDS))[0].id == "damaged-lock"


def test_a_pin_in_quotation_marks_is_read_too(loops: Path) -> None:
    """A lock file that somebody laid out anew."""
    path = write(loops)
    spec, _, _ = read_loop(read_source(path))
    assert isinstance(spec, NaturalSpec)
    quoted = MADE.replace('"', '\\"').replace("\n", "\\n")
    (loops / LOCK).write_text(f'version: 1\npins: {{{key_of(spec)}: {{yaml: "{quoted}"}}}}\n')
    assert compile_file(path).program.name == "fewer-errors"


def test_a_mistake_in_quotation_marks_is_shown_with_its_line(loops: Path) -> None:
    """It has no line of its own in the lock file, so the text that it is in is shown."""
    path = write(loops)
    spec, _, _ = read_loop(read_source(path))
    assert isinstance(spec, NaturalSpec)
    quoted = MADE.replace("toward", "towrd").replace('"', '\\"').replace("\n", "\\n")
    (loops / LOCK).write_text(f'version: 1\npins: {{{key_of(spec)}: {{yaml: "{quoted}"}}}}\n')
    with pytest.raises(CompileError) as caught:
        compile_file(path)
    shown = render_all(caught.value.diagnostics, caught.value.sources, False)
    assert "<.loops/natural.lock>" in shown
    assert "| towrd: 0" in shown


def test_a_printed_fsm_reads_back(loops: Path) -> None:
    """It needs no pin any more."""
    printed = fsm(compile_file(write(loops)))
    assert fsm(compile_text(printed)) == printed
    assert fsm(compile_text("paradigm: natural\n" + printed)).endswith(printed)


def test_an_image_in_the_cache_is_current_while_the_pin_is(loops: Path) -> None:
    """The lock file is one of the program's sources."""
    image = emit(compile_file(write(loops)).program)
    assert image_cache.is_current(image)
    write(loops, made=MADE.replace("9", "8"))
    assert not image_cache.is_current(image)


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00\r"), min_size=1)


@given(st.lists(st.builds(Pin, st.from_regex(r"sha256-[0-9a-f]{8}", fullmatch=True), TEXT, TEXT, TEXT)))
def test_pins_are_read_back(tmp_path_factory: pytest.TempPathFactory, pins: list[Pin]) -> None:
    """Whatever they hold."""
    pins = list({pin.key: pin for pin in pins}.values())
    path = tmp_path_factory.mktemp("lock") / LOCK
    path.write_text(print_lock(pins), newline="")
    assert pins_in(str(path)) == pins
