"""Code images: an exact round trip of the file format, and rejection of any other content."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from laws import tried

from llc.ir.nodes import Const, Function, Limits, Meta, Prim, Program, Return, Set, Slot, State
from llc.ir.spans import Source, Span
from llc.ir.text import parse_program
from llc.vm.code.emit import emit
from llc.vm.code.image import MAGIC, Image, ImageError

TEXT = """
program `sample` entry main
meta {"kind": "loop", "paradigm": "fsm", "scope": ["src", "tests"], "limits": {"max_iterations": 5}}
source 0 "a.yaml" sha256:00
function main() locals(x, f) @0:1:1-9:1
  state one on fault -> two(x) @0:2:1-3:1
    x = list(1, 2.5, "tëxt", null, [true, {"k": [1]}], 123456789012345678901234567890)
    switch x { "a" -> two, "b" -> one, else -> two }
  state two
    f = closure other(x)
    call f(1) -> x then three @0:4:2-4:9
  state three
    return x
function other(n) captures(c) locals(z)
  state only
    return add(n, c)
"""
SAMPLE = emit(parse_program(TEXT, "<test>")).to_bytes()
PLAIN = emit(parse_program(TEXT, "<test>")).to_bytes(packed=False)
HEADER = 82


def sections(data: bytes) -> tuple[bytes, bytes]:
    length = int.from_bytes(data[10:14], "little")
    return data[HEADER : HEADER + length], data[HEADER + length :]


def sealed(program: bytes, debug: bytes) -> bytes:
    """A file with these sections and matching digests, so that only the reader can reject it."""
    lengths = len(program).to_bytes(4, "little") + len(debug).to_bytes(4, "little")
    digests = sha256(program).digest() + sha256(debug).digest()
    return data_header() + lengths + digests + program + debug


def data_header() -> bytes:
    return MAGIC + (1).to_bytes(2, "little")


def facts(image: Image) -> list[Any]:
    """All fields of an image, as comparable data."""

    def comparable(item: Any) -> Any:
        names = [name for name in type(item).__slots__ if not name.startswith("_")]
        return {name: getattr(item, name) for name in names}

    rows = comparable(image)
    rows["functions"] = [comparable(function) for function in image.functions]
    rows["sources"] = [comparable(source) for source in image.sources]
    return [rows]


def test_file_format_round_trips() -> None:
    """The image read from a file is equal and writes the same bytes."""
    image = emit(parse_program(TEXT, "<test>"))
    read_back = Image.from_bytes(image.to_bytes())
    assert facts(read_back) == facts(image)
    assert read_back.to_bytes() == image.to_bytes()
    assert read_back.program_hash == image.program_hash


def test_an_image_of_the_first_format_is_read() -> None:
    """With unpacked sections it is the same program and has the same hash."""
    first, second = Image.from_bytes(PLAIN), Image.from_bytes(SAMPLE)
    assert (PLAIN[8], SAMPLE[8]) == (1, 2)
    assert facts(first) == facts(second)
    assert first.program_hash == second.program_hash
    assert len(SAMPLE) < 0.6 * len(PLAIN)


def test_a_text_that_packs_too_well_is_not_packed() -> None:
    """The unpacked size must be in proportion to the file, so a section beyond the ratio is written
    unpacked.
    """
    source = Source("long.yaml", "ab", "x" * 1_000_000)
    data = emit(program(sources=(source,))).to_bytes()
    assert data[8] == 1
    assert Image.from_bytes(data).sources[0].text == source.text


def test_metadata_is_kept() -> None:
    """A host can read the metadata of a loop before it runs."""
    image = Image.from_bytes(SAMPLE)
    assert image.name == "sample"
    assert image.meta == {
        "kind": "loop",
        "paradigm": "fsm",
        "scope": ["src", "tests"],
        "maintain": False,
        "limits": {
            "max_iterations": 5,
            "max_steps": None,
            "timeout_ms": None,
            "budget_usd": None,
            "budget_tokens": None,
        },
    }


def program(value: Any = 1, **changes: Any) -> Program:
    span = Span("p.yaml", 3, 1, 3, 9)
    state = State("s", (Set("x", Const(value), span=span),), Return(Prim("list", (Slot("x"),))), span=span)
    function = Function("main", (), (state,), locals=("x",))
    source = Source("p.yaml", "ab", "the text")
    original = Program("p", "main", (function,), Meta(limits=Limits(max_steps=3)), sources=(source,))
    return attrs.evolve(original, **changes)


def test_the_program_hash_ignores_spans_and_sources() -> None:
    """Moved lines and changed comments keep the hash; another constant changes it."""
    edited = program(sources=(Source("q.yaml", "cd", "# comment"),))
    function = edited.functions[0]
    bare = attrs.evolve(function.states[0], body=(Set("x", Const(1)),), span=None)
    edited = attrs.evolve(edited, functions=(attrs.evolve(function, states=(bare,)),))
    assert emit(edited).program_hash == emit(program()).program_hash
    assert emit(edited).to_bytes() != emit(program()).to_bytes()
    hashes = {emit(program(value)).program_hash for value in (1, 2, 1.0, True, "1")}
    assert len(hashes) == 5
    assert emit(program(meta=Meta())).program_hash != emit(program()).program_hash


def test_sources_can_be_left_out() -> None:
    """The image keeps only their names and digests."""
    with_text, without = emit(program()), emit(program(), sources=False)
    assert [(s.path, s.sha256, s.text) for s in with_text.sources] == [("p.yaml", "ab", "the text")]
    assert [(s.path, s.sha256, s.text) for s in without.sources] == [("p.yaml", "ab", None)]
    assert b"the text" in with_text.to_bytes(packed=False)
    assert b"the text" not in without.to_bytes(packed=False)
    assert with_text.program_hash == without.program_hash


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a code image"),
        (b"name: lint\n", "not a code image"),
        (SAMPLE.replace(b"\r\n", b"\n"), "not a code image"),
        (SAMPLE[:5], "truncated"),
        (SAMPLE[:40], "truncated"),
        (SAMPLE[:-1], "truncated"),
        (PLAIN[:-1], "truncated"),
        (PLAIN + b"\0", "something follows"),
        (SAMPLE[:8] + b"\x03\0" + SAMPLE[10:], "newer llc"),
        (SAMPLE[:8] + b"\0\0" + SAMPLE[10:], "format 0"),
        (SAMPLE[:-1] + b"\xff", "damaged"),
        (PLAIN[:-1] + b"\xff", "damaged"),
    ],
)
def test_damaged_file_is_an_error(data: bytes, message: str) -> None:
    """Each kind of damage has its own message."""
    with pytest.raises(ImageError, match=message):
        Image.from_bytes(data)


@given(st.sampled_from([SAMPLE, PLAIN]), st.data())
def test_changed_byte_is_an_error(sample: bytes, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(sample) - 1))
    damaged = bytearray(sample)
    damaged[index] ^= data.draw(st.integers(1, 255))
    with pytest.raises(ImageError):
        Image.from_bytes(bytes(damaged))


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_any_sections_are_read_or_rejected(program: bytes, debug: bytes) -> None:
    """With matching digests, the reader raises nothing but ImageError."""
    with suppress(ImageError):
        Image.from_bytes(sealed(program, debug))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2**33)
    | st.floats()
    | st.text(max_size=3)
    | st.sampled_from(["list", "map", "box", "function"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def mutated(draw: Callable[[Any], Any], content: Any) -> Any:
    """JSON content with one random part replaced, removed or duplicated."""
    where = content
    while True:
        keys = list(where) if isinstance(where, dict) else list(range(len(where)))
        key = draw(st.sampled_from(keys))
        if isinstance(where[key], dict | list) and where[key] and draw(st.booleans()):
            where = where[key]
            continue
        match draw(st.sampled_from(["replace", "remove", "double"])):
            case "replace":
                where[key] = draw(JSON)
            case "remove":
                del where[key]
            case _ if isinstance(where, list):
                where.insert(key, where[key])
        return content


@given(st.data())
@settings(max_examples=tried(100))
def test_forged_section_is_read_or_rejected(data: st.DataObject) -> None:
    """A changed part of the JSON or a changed word gives an image or an ImageError."""
    parts = list(sections(PLAIN))
    which = data.draw(st.integers(0, 1))
    length = int.from_bytes(parts[which][:4], "little")
    content, tail = json.loads(parts[which][4 : 4 + length]), bytearray(parts[which][4 + length :])
    content = mutated(data.draw, content)
    if data.draw(st.booleans()):
        tail[data.draw(st.integers(0, len(tail) - 1))] = data.draw(st.integers(0, 255))
    text = json.dumps(content).encode()
    parts[which] = len(text).to_bytes(4, "little") + text + bytes(tail)
    try:
        image = Image.from_bytes(sealed(*parts))
    except ImageError:
        return
    for function in image.functions:
        for offset in range(len(function.code)):
            image.place_at(function, offset)


@pytest.mark.parametrize(
    "text",
    [b"[" * 100_000, b'{"a":' * 100_000, b"9" * 100_000, b"\xff\xfe", b"null", b"[]", b"{}", b"NaN"],
)
def test_hostile_json_in_a_section_is_an_error(text: bytes) -> None:
    """Endless nesting, endless numbers, no text, no object."""
    _, debug = sections(PLAIN)
    with pytest.raises(ImageError, match="malformed"):
        Image.from_bytes(sealed(len(text).to_bytes(4, "little") + text, debug))
