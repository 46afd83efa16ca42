"""JSON without the package `json`: the same texts, data and errors."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llc.ir import light_json

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=()))
)
DATA = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner)
)
BROKEN = ["", " ", "[1,", '{"a" 1}', "nul", "1 2", '"\x01"', "\ufeff[]", "[" * 100_000, b"\xff", b"[1] \n"]


@given(DATA)
def test_output_equals_json_dumps(value: Any) -> None:
    """Each writer has the settings of `json.dumps`, also for surrogates and NaN."""
    assert light_json.dumps(value) == json.dumps(value, ensure_ascii=False)
    assert light_json.dumps_ascii(value) == json.dumps(value)
    assert light_json.dumps_compact(value) == json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    assert light_json.dumps_compact_ascii(value) == json.dumps(value, separators=(",", ":"))
    assert light_json.dumps_indented(value) == json.dumps(value, ensure_ascii=False, indent=2)


@given(DATA, st.sampled_from([None, 1]))
def test_input_is_read_like_json_loads(value: Any, indent: int | None) -> None:
    """As a string and as bytes; NaN is compared by its text."""
    text = json.dumps(value, indent=indent)
    assert repr(light_json.loads(text)) == repr(json.loads(text))
    assert repr(light_json.loads(text.encode())) == repr(json.loads(text))


def result(read: Callable[[Any], Any], text: str | bytes) -> object:
    """The data of a text, or the error with its message."""
    try:
        return read(text)
    except (ValueError, RecursionError) as error:
        return type(error), "" if isinstance(error, RecursionError) else str(error)


@pytest.mark.parametrize("text", BROKEN)
def test_errors_equal_those_of_json_loads(text: str | bytes) -> None:
    assert result(light_json.loads, text) == result(json.loads, text)


def test_invalid_first_text_of_a_process() -> None:
    """The package `json`, which has the class of the error, is imported on demand."""
    code = (
        "import sys\n"
        "from llc.ir import light_json as light\n"
        "assert 'json' not in sys.modules\n"
        "try: light.loads(sys.argv[1])\n"
        "except ValueError as error: print(error)"
    )
    for text, message in (
        ("{", "Expecting property name"),
        ("[1", "Expecting ',' delimiter"),
        ("", "Expecting"),
    ):
        run = [sys.executable, "-c", code, text]
        assert subprocess.run(run, capture_output=True, text=True, check=True).stdout.startswith(message)


def test_text_with_final_newline_needs_no_package() -> None:
    code = (
        "import sys\n"
        "from llc.ir import light_json as light\n"
        "assert light.loads(b'[1] \\r\\n\\t') == [1]\n"
        "assert 'json' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_unsupported_type_is_an_error() -> None:
    for write in (light_json.dumps, light_json.dumps_indented):
        with pytest.raises(TypeError, match="Object of type set is not JSON serializable"):
            write([{1}])


def test_package_is_used_without_the_c_scanner() -> None:
    """Another interpreter may not have the private functions of CPython."""
    code = (
        "import sys; sys.modules['_json'] = None\n"
        "from llc.ir import light_json as light\n"
        "assert 'json' in sys.modules\n"
        "text = light.dumps_compact_ascii({'a': [1, '\\u20ac']})\n"
        "print(text, light.loads(text) == light.loads(text + ' '))"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout == '{"a":[1,"\\u20ac"]} True\n'
