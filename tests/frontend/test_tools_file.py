"""`.loops/tools.yaml`: valid declarations, and diagnostics for invalid ones."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from llc.frontend.source.files import text_source
from llc.frontend.tasks.registry import read_project
from llc.frontend.tasks.signature import Signature
from llc.frontend.tasks.tools_file import read_tools
from llc.ir.diagnostics import render_all

GOOD = """
tools:
  - name: math:add
    description: |
      The sum of two numbers.
    parameters:
      x: number
      y: {type: number, required: false, description: The other.}
    command: [python3, -c, "print(${x})", "--y=${y}", "$${x}"]
    timeout: 2.5
    output: json
  - name: my:grep
    parameters:
      - pattern
      - {name: files, type: array, default: []}
    command: 'grep "${pattern}" ${files} # ${pattern} $HOME ${HOME:-x}'
  - name: py
    python: package.module:Class.method
"""


def read(text: str) -> tuple[list[Signature], list[tuple[int, str]]]:
    tools, diagnostics = read_tools(text_source(text, "tools.yaml"))
    return tools, [(item.span.line if item.span else 0, item.id) for item in diagnostics]


def test_a_file_declares_tools_with_their_parameters() -> None:
    """Names, types, defaults and definition of each tool, in order."""
    tools, diagnostics = read(GOOD)
    assert diagnostics == []
    add, grep, py = tools
    assert (add.name, add.doc, add.timeout_s) == ("math:add", "The sum of two numbers.", 2.5)
    assert [(p.name, p.type, p.is_required, p.default) for p in add.order] == [
        ("x", "number", True, None),
        ("y", "number", False, None),
    ]
    assert add.definition == {
        "argv": [["python3"], ["-c"], ["print(", {"of": "x"}, ")"], ["--y=", {"of": "y"}], ["${x}"]],
        "output": "json",
    }
    assert [(p.name, p.type, p.is_required, p.default) for p in grep.order] == [
        ("pattern", "any", True, None),
        ("files", "list", False, []),
    ]
    assert py.definition == {"python": "package.module:Class.method"}


def test_shell_command_quotes_each_value_for_its_position() -> None:
    """Shell variables are kept; a parameter in a comment is not substituted."""
    _, grep, _ = read(GOOD)[0]
    assert grep.definition == {
        "shell": [
            'grep "',
            {"of": "pattern", "quoting": "double"},
            '" ',
            {"of": "files", "quoting": "word"},
            " # ",
            {"of": "pattern", "quoting": "comment"},
            " $HOME ${HOME:-x}",
        ]
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [(1, "empty-document")]),
        ("tools: 5\n", [(1, "wrong-type")]),
        ("tool: []\n", [(1, "unknown-key"), (1, "missing-field")]),
        ("- 5\n", [(1, "wrong-type")]),
        ("- {command: [a]}\n", [(1, "missing-field")]),
        ("- {name: a}\n", [(1, "missing-field")]),
        ("- {name: a, command: [x], python: 'm:f'}\n", [(1, "missing-field")]),
        ("- {name: a, command: []}\n", [(1, "empty-command")]),
        ("- {name: a, command: ' '}\n", [(1, "empty-command")]),
        ("- {name: a, command: {x: 1}}\n", [(1, "wrong-type")]),
        ("- {name: a, command: [[x]]}\n", [(1, "wrong-type")]),
        ("- {name: a, python: 'os'}\n", [(1, "wrong-type")]),
        ("- {name: a, python: 'm:f', output: json}\n", [(1, "contradictory-keys")]),
        ("- {name: 'system:x', command: [a]}\n", [(1, "bad-name")]),
        ("- {name: map, command: [a]}\n", [(1, "bad-name")]),
        ("- {name: if, command: [a]}\n", [(1, "bad-name")]),
        ("- {name: 'a b', command: [a]}\n", [(1, "bad-name")]),
        ("- {name: 5, command: [a]}\n", [(1, "wrong-type")]),
        ("- {name: a, command: [a]}\n- {name: a, command: [a]}\n", [(2, "repeated-tool")]),
        ("- {name: a, command: [a], timeout: 0}\n", [(1, "out-of-range")]),
        ("- {name: a, command: [a], timeout: .inf}\n", [(1, "out-of-range")]),
        ("- {name: a, command: [a], timeout: true}\n", [(1, "wrong-type")]),
        ("- {name: a, command: [a], on_unknown: redo}\n", [(1, "unknown-value")]),
        ("- {name: a, command: [a], output: xml}\n", [(1, "unknown-value")]),
        ("- name: a\n  command: [a]\n  parameters:\n    x: strng\n", [(4, "unknown-value")]),
        ("- name: a\n  command: [a]\n  parameters:\n    '1x': string\n", [(4, "bad-name")]),
        ("- name: a\n  command: [a]\n  parameters: [x, x]\n", [(3, "repeated-parameter")]),
        ("- name: a\n  command: [a]\n  parameters: [{type: string}]\n", [(3, "missing-field")]),
        (
            "- name: a\n  command: [a]\n  parameters:\n    x: {type: number, default: a}\n",
            [(4, "wrong-type")],
        ),
        ("- name: a\n  command: [a]\n  parameters:\n    x: {required: 1}\n", [(4, "wrong-type")]),
        (
            "- name: a\n  command: [a]\n  parameters:\n    x: {required: true, default: 1}\n",
            [(4, "contradictory-keys")],
        ),
        ("- name: a\n  command: ['${x}']\n", [(2, "unknown-parameter")]),
        ("- name: a\n  command: ['${x.y}']\n", [(2, "malformed-variable")]),
        ("- name: a\n  command: 'echo ${x}'\n", [(2, "unknown-parameter")]),
        ("- name: a\n  parameters: [x]\n  command: 'echo `echo ${x}`'\n", [(3, "unquotable-variable")]),
        (
            "- name: a\n  parameters: [x]\n  command: \"cat <<-'E'\\n${x}\\nE\\n\"\n",
            [(3, "unquotable-variable")],
        ),
        ("- name: a\n  parameters: [x]\n  command: 'eval ${x}'\n", [(3, "variable-in-code")]),
        ("tools: [", [(1, "yaml-syntax")]),
        ("a: &a [*a]\n", [(1, "recursive-alias")]),
        ('- {name: a, command: ["\\0"]}\n', [(1, "nul-character")]),
    ],
)
def test_error_is_reported_at_its_line(text: str, expected: list[tuple[int, str]]) -> None:
    assert read(text)[1] == expected


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "a: " + "x" * 1_000_000,
        "- {name: a, command: [b], parameters: {" + ", ".join(f"p{n}: any" for n in range(101)) + "}}",
        "\n".join(f"- {{name: t{n}, command: [a]}}" for n in range(1001)),
        "a: &a [x, x]\nb: &b [*a, *a]\n"
        + "\n".join(
            f"{chr(99 + n)}: &{chr(99 + n)} [{', '.join([f'*{chr(98 + n)}'] * 20)}]" for n in range(8)
        ),
    ],
    ids=["deep", "long", "parameters", "tools", "aliases"],
)
def test_hostile_file_is_an_error(text: str) -> None:
    """The errors have spans and are short."""
    tools, diagnostics = read_tools(text_source(text, "tools.yaml"))
    assert tools == []
    assert diagnostics
    assert all(item.span is not None for item in diagnostics)
    assert len(render_all(diagnostics, [text_source(text, "tools.yaml")])) < 6000


def test_unreadable_files_are_reported(tmp_path: Path) -> None:
    """Wrong encodings, folders, pipes."""
    (tmp_path / "tools.yaml").write_bytes(b"- {name: a\xff}")
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "folder.xml").mkdir()
    os.mkfifo(tmp_path / "tasks" / "pipe.xml")
    (tmp_path / "tasks" / "utf16.xml").write_bytes(
        '<?xml version="1.0" encoding="utf-16"?><task/>'.encode("utf-16")
    )
    ids: list[Any] = [item.id for item in read_project(str(tmp_path)).diagnostics]
    assert ids == ["not-utf-8", "unreadable-file", "unreadable-file", "not-utf-8"]
