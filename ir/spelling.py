"""How the S-expression language writes atoms, so that they read back equal; `spec/syntax.md`.

For printers of data and of values alike. Must not import anything heavy: programs print as they run.
"""

from __future__ import annotations

import re

# Characters that end a word, wherever it stands.
ENDS = r"\s\x00-\x1f\x7f()\[\]{}\"';,`|\\"
CURLY = "“”„‟«»‘’‚‛"
NUMERIC = re.compile(r"[-+]?\.?[0-9]")
# Words that are no symbols; `.` stands before a tail.
RESERVED = frozenset(("null", "true", "false", "nil", "+inf.0", "-inf.0", "+nan.0", "-nan.0", "."))

_WORD = re.compile(rf"[^{ENDS}{CURLY}#][^{ENDS}{CURLY}]*+")
_NAMES = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\\": "\\\\"}


def spell_symbol(name: str) -> str:
    """The symbol of a name: as it is, or in bars."""
    is_word = _WORD.fullmatch(name) and name.isprintable()
    if is_word and name not in RESERVED and not NUMERIC.match(name):
        return name
    return f"|{_escape(name, '|')}|"


def spell_string(text: str) -> str:
    """A string in quotation marks, in one line, without anything invisible.

    Half a surrogate pair is an escape; two halves that would make a pair read back as the character.
    """
    return f'"{_escape(text, chr(34))}"'


def spell_float(value: float) -> str:
    if value != value:
        return "+nan.0"
    text = repr(value)
    return f"+{text}.0" if text == "inf" else f"{text}.0" if text == "-inf" else text


def _escape(text: str, mark: str) -> str:
    if text.isprintable() and mark not in text and "\\" not in text:
        return text
    out = []
    for character in text:
        if character == mark:
            out.append("\\" + mark)
        elif character in _NAMES:
            out.append(_NAMES[character])
        elif character.isprintable():
            out.append(character)
        else:
            units = character.encode("utf-16-be", "surrogatepass").hex()
            out.append("".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)))
    return "".join(out)
