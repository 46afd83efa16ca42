"""Task request lines: words, JSON, options, expressions and their errors."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import llc
from llc.frontend.tasks.registry import TaskRegistry
from llc.frontend.tasks.signature import Parameter, Signature
from llc.runtime.cli import subcommands
from llc.runtime.host.errors import UserError
from llc.runtime.terminal import task_line

REVIEW = Signature(
    "user:review",
    "task",
    (
        Parameter("diff", "string"),
        Parameter("depth", "integer", False, 1),
        Parameter("ratio", "number", False),
        Parameter("be_strict", "boolean", False),
        Parameter("quiet", "boolean", False),
        Parameter("tags", "list", False),
        Parameter("how", "any", False, choices=("fast", "well")),
    ),
    "task",
)
OWN = {"user:review": REVIEW}
OPTIONS = subcommands.find("task").options
NONE = TaskRegistry()


def call_text(*words: str) -> str:
    return task_line.read(["user:review", *words], NONE, own=OWN, options=OPTIONS).text


def read_error(*words: str) -> UserError:
    with pytest.raises(UserError) as caught:
        task_line.read(["user:review", *words], NONE, own=OWN, options=OPTIONS)
    assert len(caught.value.message) < 500
    return caught.value


def test_a_value_is_read_by_the_type_of_its_parameter() -> None:
    """Strings are unchanged; numbers and booleans are parsed."""
    assert call_text("diff=5") == '(user:review (diff "5"))'
    assert call_text("diff=x", "depth=5", "ratio=1.5", "be_strict=no") == (
        '(user:review (diff "x") (depth 5) (ratio 1.5) (be_strict false))'
    )


def test_json_begins_with_a_bracket_or_a_quotation_mark() -> None:
    """Lists, maps and strings; a string with such a first character is written as JSON."""
    assert call_text("diff=x", 'tags=["a", {"b": null}]') == (
        '(user:review (diff "x") (tags (list "a" (dict ("b" null)))))'
    )
    assert call_text('diff="[x]\\n"') == '(user:review (diff "[x]\\n"))'
    assert "is not valid JSON" in read_error("diff=[x]").message
    assert "diff='\"[x]\"'" in (read_error("diff=[x]").help or "")
    assert "NaN" in read_error("diff=[NaN]").message
    assert read_error("diff=" + "[" * 100_000).id == "bad-task"


def test_an_unknown_parameter_has_the_diagnostic_id_of_the_compiler() -> None:
    assert read_error("wat=1").id == "unknown-parameter"


def test_a_flag_is_true_and_may_have_hyphens() -> None:
    """`--be-strict` is the parameter `be_strict`; a flag may have a value."""
    assert call_text("diff=x", "--be-strict") == '(user:review (diff "x") (be_strict true))'
    assert call_text("diff=x", "--depth=3") == '(user:review (diff "x") (depth 3))'
    assert "a flag" in read_error("--diff").message


def test_a_parameter_of_the_task_overrides_an_option_of_llc() -> None:
    """`--quiet` is the parameter, `--json` the option of llc."""
    line = ["user:review", "diff=x", "--quiet", "--json", "--jobs", "2"]
    call = task_line.read(line, NONE, own=OWN, options=OPTIONS)
    assert call.text == '(user:review (diff "x") (quiet true))'
    assert call.llc_options == {"json": True, "jobs": 2}


def test_every_task_has_files_and_context() -> None:
    """A single path, or another single string, needs no list."""
    assert call_text("diff=x", "files=a b.py") == '(user:review (diff "x") (files (list "a b.py")))'
    assert call_text("diff=x", "tags=urgent") == '(user:review (diff "x") (tags (list "urgent")))'
    assert call_text("diff=x", 'context={"fresh_context": "enabled"}').endswith(
        '(context (dict ("fresh_context" "enabled"))))'
    )


@pytest.mark.parametrize(
    ("words", "message", "help"),
    [
        ((), "needs `diff`", "user:review diff=…"),
        (("dif=x",), "no parameter `dif`", "did you mean `diff`?"),
        (("--be-stric",), "no parameter `be-stric`", "did you mean"),
        (("diff=x", "diff=y"), "duplicate argument", None),
        (("hello",), "`hello` has no `=`", "write diff=hello"),
        (("diff=x", "depth=many"), "a whole number", "depth=3"),
        (("diff=x", "how=wel"), "cannot be `wel`", "did you mean `well`?"),
        (("diff=x", "--jobs", "0"), "must be at least 1", None),
        (("diff=x", "--script"), "needs a value", None),
    ],
)
def test_mistakes_are_reported_with_help(words: tuple[str, ...], message: str, help: str | None) -> None:
    error = read_error(*words)
    assert message in error.message
    if help is not None:
        assert help in (error.help or "")


def test_a_long_word_is_truncated_in_messages() -> None:
    assert len(read_error("x" * 100_000).message) < 200
    assert len(read_error("depth=" + "9" * 5000).message) < 200
    with pytest.raises(UserError) as caught:
        task_line.read(["n" * 100_000], NONE)
    assert len(caught.value.message) < 200


def test_an_expression_begins_with_a_bracket() -> None:
    """Surrounding quotation marks are removed without a change of columns."""
    assert task_line.read(["'(+ 1 2)"], NONE).text == " (+ 1 2)"
    assert task_line.expression("'(+ 1 2)'") == " (+ 1 2)"
    assert task_line.read(["(+ 1 2)", "--json"], NONE, options=OPTIONS).llc_options == {"json": True}
    with pytest.raises(UserError, match="after an expression"):
        task_line.read(["(+ 1 2)", "3"], NONE)


def test_a_line_is_split_as_in_a_shell() -> None:
    """Quotation marks are removed; JSON after a `=` needs none around it."""
    split = task_line.split
    assert split("""a b='c d' e="f g"  h\\ i""") == ["a", "b=c d", 'e="f g"', "h i"]
    assert split("""x {"a": 1}""") == ["x", "{a:", "1}"]
    assert split("""t k={"a b": [1, 2]} l=[1]x""") == ["t", 'k={"a b": [1, 2]}', "l=[1]x"]
    with pytest.raises(UserError, match="unclosed quotation mark"):
        split("a 'b c")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(JSON.filter(lambda value: "\x00" not in json.dumps(value)))
def test_data_is_written_as_an_expression_with_the_same_value(value: Any) -> None:
    assert llc.evaluate(task_line.written(value)) == value


@given(st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"]))))
def test_quoted_words_are_read_back(words: list[str]) -> None:
    """Words written by `shlex.join` are split into the same words, except JSON after a `=`."""
    import shlex

    words = [word.replace("=", "-") for word in words]
    assert task_line.split(shlex.join(words)) == words
