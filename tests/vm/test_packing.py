"""Packed sections: an exact round trip, and rejection of any other data."""

from __future__ import annotations

import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llc.vm.code.packing import MOST, PackingError, pack, unpack


@st.composite
def sections(draw: st.DrawFn) -> bytes:
    text = draw(st.binary(max_size=50))
    words = draw(st.lists(st.integers(0, 300) | st.integers(0, 2**32 - 1), max_size=200))
    body = b"".join(word.to_bytes(4, "little") for word in words)
    return len(text).to_bytes(4, "little") + text + body


@given(st.lists(sections(), min_size=1, max_size=3))
def test_packed_sections_round_trip(parts: list[bytes]) -> None:
    """For any texts and words."""
    packed = pack(parts)
    if packed is not None:
        assert unpack(packed, [len(part) for part in parts]) == parts


@given(st.binary(max_size=100), st.lists(st.integers(0, 1000), max_size=3))
def test_any_bytes_are_unpacked_or_rejected(data: bytes, lengths: list[int]) -> None:
    """The reader raises nothing but PackingError, packed or not."""
    for stream in (data, zlib.compress(data)):
        with suppress(PackingError):
            unpack(stream, lengths)


def test_decompression_bomb_is_an_error() -> None:
    """It is detected before unpacking: a megabyte of zeros takes a thousand bytes."""
    bomb = zlib.compress(bytes(1 << 20))
    assert len(bomb) * MOST < 1 << 20
    with pytest.raises(PackingError, match="longer than it can be"):
        unpack(bomb, [1 << 20])
    with pytest.raises(PackingError, match="length is wrong"):
        unpack(bomb, [1000])


def test_code_of_many_states_packs_well() -> None:
    """Words are mostly zeros, and the words of adjacent states are similar."""
    words = b"".join((n % 7 + k).to_bytes(4, "little") for n in range(5000) for k in (1, n, 3))
    section = (2).to_bytes(4, "little") + b"{}" + words
    packed = pack([section])
    assert packed is not None
    assert len(packed) < len(section) / 4
