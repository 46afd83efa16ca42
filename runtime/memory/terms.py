"""Tokenizer: text to terms, for files and queries alike.

A word is a sequence of letters, digits and underscores. Its terms are its parts (`parseConfig`,
`parse_config`, `HTTPServer2` → `parse`, `config`, …) without case, accents and English endings; a word of
several parts is also a term itself. Scripts without spaces give pairs of characters. A term consists of
letters and digits, so it has no meaning in SQLite's query syntax.
"""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise

# Maximum length of a word, in characters; longer words are hashes, keys and data.
MAX_WORD = 64
# Maximum number of words in the cache.
_MAX_CACHED_WORDS = 200_000

_WORD = re.compile(r"\w+")
_PART = re.compile(r"[A-Z]+(?![a-z])[0-9]*|[A-Z]?[a-z]+[0-9]*|[0-9]+")
# Thai; Hiragana, Katakana; Han; Hangul; Han compatibility ideographs.
_UNSPACED = "\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_RUN = re.compile(f"[{_UNSPACED}]+|[^{_UNSPACED}]+")
_ACCENTS = re.compile("[\u0300-\u036f]")
_VOWEL = re.compile("[aeiouy]")


def terms(text: str) -> list[str]:
    """The terms of a text, in order and with repetitions."""
    return term_text(text).split()


def term_text(text: str) -> str:
    """The terms of a text, separated by spaces."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    return " ".join(filter(None, map(_term_cache.__getitem__, _WORD.findall(text))))


class _TermCache(dict[str, str]):
    """Cache: word → its terms, separated by spaces."""

    def __missing__(self, word: str) -> str:
        if len(self) >= _MAX_CACHED_WORDS:
            self.clear()
        value = self[word] = " ".join(_split(word))
        return value


_term_cache = _TermCache()


def _split(word: str) -> list[str]:
    if len(word) > MAX_WORD:
        return []
    if not word.isascii():
        return _split_unicode(word)
    parts = _PART.findall(word)
    result = [stem(part.lower()) for part in parts if len(part) > 1]
    if len(parts) > 1:
        result.append("".join(parts).lower())
    return result


def _split_unicode(word: str) -> list[str]:
    """The terms of a word that is not ASCII."""
    plain = _ACCENTS.sub("", unicodedata.normalize("NFD", word))
    plain = unicodedata.normalize("NFC", plain)
    if plain.isascii():
        return _split(plain)
    result = []
    for run in _RUN.findall(plain):
        if re.match(f"[{_UNSPACED}]", run):
            result += [a + b for a, b in pairwise(run)] or [run]
        elif run.isascii():
            result += _split(run)
        else:
            parts = [part for piece in run.split("_") for part in _split_camel_case(piece) if part]
            result += [part.casefold() for part in parts]
            if len(parts) > 1:
                result.append("".join(parts).casefold())
    # Casefold and NFC can produce any characters; a term must consist of letters and digits.
    return [clean for term in result if (clean := "".join(filter(str.isalnum, term)))]


def _split_camel_case(text: str) -> list[str]:
    """Split before each upper-case letter that follows a lower-case letter."""
    cuts = [index for index in range(1, len(text)) if text[index].isupper() and text[index - 1].islower()]
    return [text[a:b] for a, b in pairwise([0, *cuts, len(text)])]


def stem(word: str) -> str:
    """A word without English endings: `parsing`, `parses`, `parsed` and `parse` give the same stem.

    Removes much less than Porter's stemmer, because names in programs are not prose.
    """
    if len(word) < 4 or not word.isalpha():
        return word
    if word.endswith("ies") and len(word) > 4:
        word = word[:-3] + "y"
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    # Repeat while the stem has another ending: `embed` and `embedding` must give the same stem.
    while (base := _without_ending(word)) != word:
        word = base
    if len(word) > 3 and word.endswith("e") and not word.endswith("ee"):
        word = word[:-1]
    return word


def _without_ending(word: str) -> str:
    if word.endswith("ing"):
        return _base(word, word[:-3])
    if word.endswith("ed") and not word.endswith("eed"):
        return _base(word, word[:-2])
    return word


def _base(word: str, base: str) -> str:
    """The base of a word with `ing` or `ed`; the word itself if this is no ending, as in `string`, `shed`."""
    if len(base) < 3 or not _VOWEL.search(base):
        return word
    return base[:-1] if base[-1] == base[-2] and base[-1] not in "lsz" else base
