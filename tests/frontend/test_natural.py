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

LOOP = 'paradigm: natural\ndescription: "Fix all type errors"\ntools: ["/ll:fix"]\n'
PINNED = """paradigm: convergence
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


def write(loops: Path, description: str = LOOP, pinned: str = PINNED, pinned_for: str | None = None) -> str:
    """Write a natural-language loop, and a lock file with a pin for it or for the text `pinned_for`."""
    path = loops / "words.yaml"
    path.write_text(pinned_for or description)
    spec, _, _ = read_loop(read_source(str(path)))
    assert isinstance(spec, NaturalSpec)
    (loops / LOCK).write_text(print_lock([Pin(key_of(spec), "words", "m", pinned)]))
    path.write_text(description)
    return str(path)


def compile_errors(path: str) -> list[Diagnostic]:
    with pytest.raises(CompileError) as caught:
        compile_file(path)
    return caught.value.diagnostics


def fsm(compiled: Compiled) -> str:
    assert compiled.loop is not None
    return print_fsm(compiled.loop)


def test_pinned_loop_is_compiled(loops: Path) -> None:
    """The result equals that of a written loop, with the name chosen by the model and the author's
    description.
    """
    compiled = compile_file(write(loops))
    plain = compile_text(PINNED)
    assert compiled.program.name == "fewer-errors"
    assert compiled.loop is not None
    assert plain.loop is not None
    assert compiled.loop.states == plain.loop.states
    assert 'description: "Fix all type errors"' in fsm(compiled)


def test_settings_of_the_author_override_the_pin(loops: Path) -> None:
    """The model decides only settings that the author omits."""
    description = LOOP + "name: mine\ntimeout: 60\nmax_iterations: 3\n"
    compiled = compile_file(write(loops, description)).loop
    assert compiled is not None
    assert (compiled.name, compiled.timeout, compiled.max_iterations) == ("mine", 60, 3)
    compiled = compile_file(write(loops)).loop
    assert compiled is not None
    assert compiled.max_iterations == 9


def test_changed_description_is_not_pinned(loops: Path) -> None:
    """The pin depends on description and tools, not on white space, settings and comments."""
    other = LOOP.replace("type errors", "lint errors")
    (diagnostic,) = compile_errors(write(loops, other, pinned_for=LOOP))
    assert diagnostic.id == "not-pinned"
    assert "llc create --pin .loops/words.yaml" in (diagnostic.help or "")
    assert (
        compile_errors(write(loops, LOOP.replace("/ll:fix", "/ll:mend"), pinned_for=LOOP))[0].id
        == "not-pinned"
    )
    same = LOOP.replace("Fix all", "Fix\n  all") + "# why\nbackoff: 1\n"
    assert compile_file(write(loops, same, pinned_for=LOOP)).loop is not None
    (loops / LOCK).unlink()
    assert compile_errors(".loops/words.yaml")[0].id == "not-pinned"
    with pytest.raises(CompileError, match="has no pinned loop"):
        compile_text(LOOP)


def test_error_in_a_pin_is_reported_in_the_lock_file(loops: Path) -> None:
    """A pinned loop gets the same diagnostics as a loop in a file."""
    path = write(
        loops, pinned=PINNED.replace("/ll:fix", "echo ${context.nope}").replace("toward: 0", "towrd: 0")
    )
    diagnostics = {diagnostic.id: diagnostic for diagnostic in compile_errors(path)}
    span = diagnostics["unknown-key"].span
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
def test_malformed_lock_file_is_an_error(loops: Path, text: str) -> None:
    """The message contains the path."""
    path = write(loops)
    (loops / LOCK).write_text(text)
    diagnostics = compile_errors(path)
    assert all(diagnostic.is_error for diagnostic in diagnostics)
    assert any(".loops/natural.lock" in f"{one.message} {one.span}" for one in diagnostics)


def test_natural_loop_in_a_pin_is_an_error(loops: Path) -> None:
    """A pin must not need another pin."""
    assert compile_errors(write(loops, pinned=LOOP))[0].id == "damaged-lock"


def test_quoted_pin_is_read(loops: Path) -> None:
    """A lock file may be reformatted."""
    path = write(loops)
    spec, _, _ = read_loop(read_source(path))
    assert isinstance(spec, NaturalSpec)
    quoted = PINNED.replace('"', '\\"').replace("\n", "\\n")
    (loops / LOCK).write_text(f'version: 1\npins: {{{key_of(spec)}: {{yaml: "{quoted}"}}}}\n')
    assert compile_file(path).program.name == "fewer-errors"


def test_error_in_a_quoted_pin_shows_the_text(loops: Path) -> None:
    """The error has no line in the lock file, so the message shows the line of the pinned text."""
    path = write(loops)
    spec, _, _ = read_loop(read_source(path))
    assert isinstance(spec, NaturalSpec)
    quoted = PINNED.replace("toward", "towrd").replace('"', '\\"').replace("\n", "\\n")
    (loops / LOCK).write_text(f'version: 1\npins: {{{key_of(spec)}: {{yaml: "{quoted}"}}}}\n')
    with pytest.raises(CompileError) as caught:
        compile_file(path)
    shown = render_all(caught.value.diagnostics, caught.value.sources, False)
    assert "<.loops/natural.lock>" in shown
    assert "| towrd: 0" in shown


def test_a_printed_fsm_reads_back(loops: Path) -> None:
    """The printed FSM needs no pin."""
    printed = fsm(compile_file(write(loops)))
    assert fsm(compile_text(printed)) == printed
    assert fsm(compile_text("paradigm: natural\n" + printed)).endswith(printed)


def test_changed_pin_invalidates_the_cached_image(loops: Path) -> None:
    """The lock file is one of the program's sources."""
    image = emit(compile_file(write(loops)).program)
    assert image_cache.is_current(image)
    write(loops, pinned=PINNED.replace("9", "8"))
    assert not image_cache.is_current(image)


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00\r"), min_size=1)


@given(st.lists(st.builds(Pin, st.from_regex(r"sha256-[0-9a-f]{8}", fullmatch=True), TEXT, TEXT, TEXT)))
def test_pins_round_trip(tmp_path_factory: pytest.TempPathFactory, pins: list[Pin]) -> None:
    pins = list({pin.key: pin for pin in pins}.values())
    path = tmp_path_factory.mktemp("lock") / LOCK
    path.write_text(print_lock(pins), newline="")
    assert pins_in(str(path)) == pins
