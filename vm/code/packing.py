"""Packing of the sections of an image: most bytes of their 32-bit words are zero.

Owns the conversion of the two sections to one stream and back: the JSON of each section, then the
lowest bytes of all its words, then the next higher bytes, and so on, compressed by zlib. Must
not contain: the content of sections (`image`).
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

# Limit of the expansion of one byte of a packed stream; it bounds the memory for reading.
MOST = 32
_WORD = 4


class PackingError(ValueError):
    """A stream that is not the packed form of sections with these lengths."""


def pack(sections: Sequence[bytes]) -> bytes | None:
    """The sections as one stream; None if its expansion would exceed the limit."""
    import zlib

    parts = []
    for section in sections:
        text, words = _apart(section)
        parts += [text, *(words[plane::_WORD] for plane in range(_WORD))]
    # The fastest level; higher levels save little.
    packed = zlib.compress(b"".join(parts), 1)
    return packed if sum(map(len, sections)) <= MOST * len(packed) else None


def unpack(packed: bytes, lengths: Sequence[int]) -> list[bytes]:
    """The sections of these lengths that were packed. Raises PackingError."""
    import zlib

    whole = sum(lengths)
    if whole > MOST * len(packed):
        raise PackingError("it is longer than it can be")
    reader = zlib.decompressobj()
    try:
        stream = reader.decompress(packed, whole + 1)
    except zlib.error:
        raise PackingError("it cannot be unpacked") from None
    if len(stream) != whole or not reader.eof or reader.unused_data:
        raise PackingError("its length is wrong")
    sections = []
    for length in lengths:
        section, stream = stream[:length], stream[length:]
        text, planes = _apart(section)
        words = bytearray(len(planes))
        for plane in range(_WORD):
            count = len(planes) // _WORD
            words[plane::_WORD] = planes[plane * count : (plane + 1) * count]
        sections.append(text + words)
    return sections


def _apart(section: bytes) -> tuple[bytes, bytes]:
    """The JSON of a section with its length, and its words."""
    end = 4 + int.from_bytes(section[:4], "little")
    if len(section) < end or (len(section) - end) % _WORD:
        raise PackingError("a section's length is wrong")
    return section[:end], section[end:]
