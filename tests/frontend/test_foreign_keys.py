"""One file per incompatibility of a little-loops loop: at most one diagnostic, never wrong advice."""

from __future__ import annotations

from pathlib import Path

import pytest

from llc.frontend.compile import compile_file, compile_text
from llc.frontend.loop import foreign_keys
from llc.frontend.loop.foreign_keys import explain_evaluator, explain_key
from llc.ir.diagnostics import CompileError, Diagnostic

HEAD = "name: x\ninitial: a\n"
END = "  done: {terminal: true}\n  failed: {terminal: true, status: failure}\n"
ROUTES = "on_yes: done, on_no: a, on_error: failed"
# Wrong advice that `loops-today.md` quotes.
WRONG = ("`on_failure`", "`timeout`", "`max_steps`", "belongs to `paradigm: goal`")


def errors(text: str) -> list[Diagnostic]:
    """The errors of a loop with this state."""
    return [
        diagnostic for diagnostic in findings(f"{HEAD}states:\n  a: {{{text}}}\n{END}") if diagnostic.is_error
    ]


def findings(text: str, folder: Path | None = None) -> list[Diagnostic]:
    """Diagnostics of a text; with `folder`, of a file with the text."""
    try:
        if folder is None:
            return list(compile_text(text).diagnostics)
        (folder / "x.yaml").write_text(text)
        return list(compile_file(str(folder / "x.yaml")).diagnostics)
    except CompileError as error:
        return list(error.diagnostics)


# Incompatibilities: keys of the loop, its first state without routes, and words of the only diagnostic; "" if
# the loop is accepted.
INCOMPATIBILITIES = {
    "verdicts": ("", "action: make", ""),
    "verdicts of a route": ("", "action: make, route: {yes: done, no: a}", ""),
    "prompt": ("", "action_type: prompt, action: do it", ""),
    "slash command": ("", "action_type: slash_command, action: /x", ""),
    "metadata": ("category: a\nvisibility: b\nlabels: [c]\ntargets: [d]\nsize_ok: true", "action: x", ""),
    "failing terminal": (
        "",
        "action: x}\n  lost: {terminal: true, failure: true",
        "no route leads to state `lost`",
    ),
    "failure by its name": (
        "",
        "action: x, on_error: error}\n  error: {terminal: true",
        "`status: failure`",
    ),
    "hand-off": ("on_handoff: spawn", "action: /x", ""),
    "run folder": ("", "action: 'ls ${context.run_dir}'", ""),
    "inputs": ("required_inputs: [t]\ninput_key: t", "action: 'echo ${context.t}'", ""),
    "scope": ("scope: ['${context.d}']\ncontext: {d: src}", "action: x", ""),
    "suffixes": (
        "context: {t: a}",
        "action: 'echo ${context.t:default=b} ${context.t?} ${context.t:shell}'",
        "",
    ),
    "limit": ("max_steps: 3\non_max_steps: failed", "action: x", ""),
    "retries": ("", "action: x, max_retries: 2, on_retry_exhausted: failed", ""),
    "import": ("import: [gone.yaml]", "action: x", "gone.yaml"),
    "fragment": ("", "fragment: gone", "no fragment `gone`"),
    "parent": ("from: gone", "action: x", "gone"),
    "sub-loop": ("", "loop: gone", "gone"),
    "action type": ("", 'action_type: magic, action: "it\'s `x ${y} $("', "`action_type` cannot be `magic`"),
}


@pytest.mark.parametrize("incompatibility", INCOMPATIBILITIES)
def test_incompatibility_is_accepted_or_one_diagnostic(incompatibility: str, tmp_path: Path) -> None:
    """There are no consequential errors, such as shell errors in a prompt."""
    keys, first, words = INCOMPATIBILITIES[incompatibility]
    first, end, rest = first.partition("}\n")
    routes = ROUTES if "route:" not in first else "on_error: failed"
    if "on_error" in first:
        routes = "on_yes: failed, on_no: done"
    text = f"{keys}\n{HEAD}states:\n  a: {{{first}, {routes}{end or '}'}{rest}{'}' * bool(end)}\n{END}"
    diagnostics = findings(text, tmp_path)
    if not words:
        assert [diagnostic.message for diagnostic in diagnostics if diagnostic.is_error] == []
        return
    assert len(diagnostics) == 1, [diagnostic.message for diagnostic in diagnostics]
    assert words in f"{diagnostics[0].message} {diagnostics[0].help}"
    assert diagnostics[0].span is not None


# Common mistakes: keys of the loop, the first state, the id of the only error and words of its help.
MISTAKES = {
    "a key of a loop, misspelt": ("on_maxsteps: done", "action: x", "unknown-key", "`on_max_steps`"),
    "inputs, misspelt": ("require_inputs: [t]", "action: x", "unknown-key", "`required_inputs`"),
    "a key of a state, misspelt": ("", "action: x, faiure: true", "unknown-key", "`failure`"),
    "retries, misspelt": ("", "action: x, max_rtries: 3", "unknown-key", "`max_retries`"),
    "`with`, misspelt": ("", "loop: y, wiht: {a: 1}, action: x", "unknown-key", "`with`"),
    "imports": ("imports: [a.yaml]", "action: x", "unknown-key", "`import`"),
    "a run folder, misspelt": ("", "action: 'ls ${context.rundir}'", "unknown-variable", "`run_dir`"),
    "input": ("", "action: 'ls ${context.input}'", "unknown-variable", "`input_key: input`"),
    "one parameter": ("parameters: [t]", "action: 'ls ${context.t}'", "wrong-type", "{type: string}"),
    "a parameter's type": (
        "parameters: {t: {type: str}}",
        "action: 'ls ${context.t}'",
        "unknown-value",
        "`string`",
    ),
    "one required input": ("required_inputs: t", "action: 'ls ${context.t}'", "wrong-type", "`[t]`"),
    "approval": ("", "action_type: human_approval, action: x?, on_approve: done", "unknown-key", "`on_yes`"),
    "an agent": ("", "action_type: agent, action: x", "unknown-value", "`prompt`"),
    "a type of action": ("", "type: shell, action: x", "unknown-value", "`action_type: shell`"),
    "learning": ("", "type: learning", "missing-field", "`learning: "),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake_is_one_error_with_a_fix(mistake: str, tmp_path: Path) -> None:
    keys, first, id, words = MISTAKES[mistake]
    if "wiht" in first:
        first = first.replace(", action: x", "")
        (tmp_path / "y.yaml").write_text(f"{HEAD}states:\n  a: {{action: x, next: done}}\n{END}")
    text = f"{keys}\n{HEAD}states:\n  a: {{{first}, {ROUTES}}}\n{END}"
    (diagnostic,) = (diagnostic for diagnostic in findings(text, tmp_path) if diagnostic.is_error)
    assert (diagnostic.id, words in str(diagnostic.help)) == (id, True), diagnostic.help


@pytest.mark.parametrize(("written", "meant"), [("import: [lib]", "lib.yaml"), ("from: chlid", "child")])
def test_missing_file_has_a_suggestion(written: str, meant: str, tmp_path: Path) -> None:
    (tmp_path / "lib.yaml").write_text("fragments: {}\n")
    (tmp_path / "child.yaml").write_text(f"{HEAD}states:\n  a: {{action: x, next: done}}\n{END}")
    (diagnostic,) = findings(f"{written}\n{HEAD}states:\n  a: {{action: x, {ROUTES}}}\n{END}", tmp_path)
    assert (diagnostic.id, diagnostic.help) == ("file-not-found", f"did you mean `{meant}`?")


@pytest.mark.parametrize("key", foreign_keys._KEYS)
def test_unsupported_key_has_a_fix(key: str) -> None:
    """In a state and, except for keys that some block has, at the top level."""
    diagnostics = errors(f"action: x, {ROUTES}, {key}: y")
    assert len(diagnostics) == 1, [diagnostic.message for diagnostic in diagnostics]
    if key != "type":  # `type: learning` is known
        assert explain_key(key) == diagnostics[0].help
    assert not any(words in str(diagnostics[0].help) for words in WRONG)


@pytest.mark.parametrize("name", foreign_keys._EVALUATORS)
def test_unsupported_evaluator_has_a_fix(name: str) -> None:
    diagnostics = errors(f"action: x, evaluate: {{type: {name}, a: 1}}, {ROUTES}")
    assert [(diagnostic.id, diagnostic.help) for diagnostic in diagnostics] == [
        ("unknown-evaluator", explain_evaluator(name))
    ]


@pytest.mark.parametrize("name", foreign_keys._ACTION_TYPES)
def test_unsupported_action_type_has_a_fix(name: str) -> None:
    """The text of an action of unknown type is not checked."""
    diagnostics = errors(f'action_type: {name}, action: "it\'s `", {ROUTES}')
    assert [(diagnostic.id, diagnostic.help) for diagnostic in diagnostics] == [
        ("unknown-value", foreign_keys._ACTION_TYPES[name])
    ]


def test_missing_parent_is_the_only_error(tmp_path: Path) -> None:
    """Keys that an unreadable parent may define are not reported as missing."""
    (diagnostic,) = findings(f"name: x\nfrom: gone\nstates:\n  a: {{next: b}}\n{END}", tmp_path)
    assert diagnostic.id == "file-not-found"
