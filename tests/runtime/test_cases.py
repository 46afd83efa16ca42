"""Recorded runs as test cases: creation, reading, replay and update."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from golden_cases import CASES, run_world, worlds
from hypothesis import given, settings
from hypothesis import strategies as st
from in_process import run_llc
from laws import tried

from llc.ir.diagnostics import CompileError
from llc.runtime.host.errors import UserError
from llc.runtime.journal import codec
from llc.runtime.recordings import case_reader, case_writer, diff, find, make_case, run_cases
from llc.runtime.recordings.cases import Case
from llc.runtime.recordings.recording import Answer, EffectRequest, Note, Recording

Llc = Callable[..., subprocess.CompletedProcess[str]]

LOOP = """name: fix
initial: check
states:
  check:
    action: "echo check >> log; test -e fixed"
    on_success: done
    on_failure: mend
  mend:
    action: "touch fixed; echo mended"
    next: check
  done: {terminal: true}
max_iterations: 5
"""


@pytest.fixture
def llc(project_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Llc:
    """Runs llc in a project with a loop."""
    (project_dir / ".loops" / "fix.yaml").write_text(LOOP)
    for name in ("NO_COLOR", "FORCE_COLOR", "LLC_LLM_MODEL"):
        monkeypatch.delenv(name, raising=False)

    return run_llc


def record_case(llc: Llc, project: Path, name: str = "fix", text: str | None = None, *words: str) -> str:
    """Record a run of a loop as a case and return the text of the case."""
    if text is not None:
        (project / ".loops" / f"{name}.yaml").write_text(text)
    done = llc("run", name, "--quiet", "--record", "case", *words)
    assert (project / ".loops/tests/case.yaml").exists(), done.stderr
    return (project / ".loops/tests/case.yaml").read_text()


# --- recording and replay ----------------------------------------------------------------------


def test_recorded_case_passes_without_executing_actions(llc: Llc, tmp_path: Path) -> None:
    """`llc test` does not execute the actions, which need not exist."""
    text = record_case(llc, tmp_path)
    assert 'args: {command: "touch fixed; echo mended"}\n    result: {output: "mended\\n"}' in text
    log = (tmp_path / "log").read_text()
    done = llc("test", PATH="/nowhere")
    assert (done.returncode, done.stdout) == (0, "pass .loops/tests/case.yaml\n1 case: 1 passed\n"), (
        done.stderr
    )
    assert (tmp_path / "log").read_text() == log


def test_record_chooses_an_unused_name(llc: Llc, tmp_path: Path) -> None:
    """The name is that of the loop, with a number if needed; `-o PATH` refuses an existing file."""
    llc("run", "fix", "--quiet")
    assert llc("record", "fix").stdout == "recorded .loops/tests/fix.yaml\n"
    assert llc("record", "fix").stdout == "recorded .loops/tests/fix-2.yaml\n"
    assert llc("record", "fix", "-o", "ci/fix.yaml").stdout == "recorded ci/fix.yaml\n"
    assert llc("record", "fix", "-o", "ci/fix.yaml").returncode == 2
    assert llc("record", "fix", "-o", "ci/fix.yaml", "--force").returncode == 0
    done = llc("record", "fix", "-o", ".loops/fix.yaml", "--force")
    assert done.returncode == 2
    assert "is not a case" in done.stderr
    assert llc("test", ".loops/tests", "ci").stdout.endswith("3 cases: 3 passed\n")


def test_same_run_in_another_project_gives_the_same_case(
    llc: Llc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A case has no times, durations, run ids, process ids or project paths."""
    loop = (
        "name: where\ninitial: a\nstates:\n"
        "  a:\n    capture: out\n    next: b\n"
        "    action: 'pwd; echo \"$LLC_RUN_ID at $PWD/src, $$\"; sleep 0.0$(( $$ % 9 ))'\n"
        "  b: {action: 'echo ${captured.out.output}', next: done}\n"
        "  done: {terminal: true}\n"
    )
    texts = []
    for name in ("one", "two"):
        project = tmp_path / name
        (project / ".loops").mkdir(parents=True)
        monkeypatch.chdir(project)
        texts.append(record_case(llc, project, "where", loop))
    assert texts[0] == texts[1]
    assert "<run> at <project>/src, <pid>" in texts[0]
    assert "normalized: [times, texts]" in texts[0]
    assert llc("test").returncode == 0


def test_case_contains_no_secret(llc: Llc, tmp_path: Path) -> None:
    """Placeholders replace secrets; `llc test` elsewhere needs neither this secret nor another one."""
    loop = (
        "name: login\ninitial: a\nstates:\n"
        "  a: {action: 'echo got $DEPLOY_TOKEN', capture: out, next: b}\n"
        "  b: {action: 'echo ${captured.out.output}', next: done}\n"
        "  done: {terminal: true}\n"
    )
    (tmp_path / ".loops/login.yaml").write_text(loop)
    llc("run", "login", "--quiet", "--record", "at-once", DEPLOY_TOKEN="s3cret-value")
    llc("record", "login", "-o", "with", DEPLOY_TOKEN="s3cret-value")
    llc("record", "login", "-o", "without")
    texts = {path.stem: path.read_text() for path in (tmp_path / ".loops/tests").glob("*.yaml")}
    assert set(texts) == {"at-once", "with", "without"}
    assert len(set(texts.values())) == 1
    assert "s3cret" not in texts["with"]
    assert "got <DEPLOY_TOKEN>" in texts["with"]
    assert llc("test").returncode == 0
    assert llc("test", DEPLOY_TOKEN="another-value").returncode == 0
    assert llc("replay", "login").returncode == 0
    loop = loop.replace("echo ${captured", "printf %s ${captured")
    (tmp_path / ".loops/login.yaml").write_text(loop)
    done = llc("replay", "login", "--against", "login", DEPLOY_TOKEN="s3cret-value")
    assert done.returncode == 1
    assert "printf %s 'got ***" in done.stdout
    done = llc(
        "run", "-e", "(sleep 0)", "--arg", "x=s3cret-value", "--record", "x", DEPLOY_TOKEN="s3cret-value"
    )
    assert done.returncode == 1
    assert "error[secret-in-case]" in done.stderr
    assert "a case cannot contain secrets" in done.stderr


def test_texts_that_decide_the_course_are_kept(llc: Llc, tmp_path: Path) -> None:
    """If masking would change the course of the run, the texts are kept, with a note."""
    loop = (
        "name: where\ninitial: a\nstates:\n"
        "  a:\n    evaluate: {type: output_contains, pattern: /}\n"
        "    action: pwd\n    on_success: end\n    on_failure: bad\n"
        "  end: {terminal: true}\n  bad: {terminal: true, status: failure}\n"
    )
    (tmp_path / ".loops" / "where.yaml").write_text(loop)
    llc("run", "where", "--quiet")
    done = llc("record", "where")
    assert "the course of the run depends on its texts" in done.stderr
    assert "normalized: [times]" in (tmp_path / ".loops/tests/where.yaml").read_text()
    assert llc("test").returncode == 0


def test_options_of_the_run_are_recorded(llc: Llc, tmp_path: Path) -> None:
    """Context and limits are recorded, so that a test elsewhere compiles the same program."""
    loop = LOOP.replace("states:", "context: {word: mended}\nstates:", 1).replace(
        "echo mended", "echo ${context.word}"
    )
    text = record_case(llc, tmp_path, "fix", loop, "--context", "word=done", "--max-iterations", "3")
    assert 'options:\n  max_iterations: 3\n  context:\n    word: "done"\n' in text
    assert llc("test").returncode == 0


def test_model_of_the_environment_is_recorded(llc: Llc, tmp_path: Path) -> None:
    """The value of LLC_LLM_MODEL at test time has no effect."""
    (tmp_path / ".loops" / "ask.yaml").write_text(
        "name: ask\ninitial: a\nstates:\n  a: {action: /check it, on_success: done, on_failure: done}\n"
        "  done: {terminal: true}\n"
    )
    (tmp_path / "world.yaml").write_text(
        "- {kind: agent, output: fine}\n- {kind: evaluate, verdict: success}\n"
    )
    llc("run", "ask", "--quiet", "--script", "world.yaml", "--record", "ask", LLC_LLM_MODEL="model-x")
    assert "default_model: model-x" in (tmp_path / ".loops/tests/ask.yaml").read_text()
    assert llc("test", LLC_LLM_MODEL="model-y").returncode == 0


def test_expression_is_recorded(llc: Llc, tmp_path: Path) -> None:
    """The case contains an expression; concurrent calls keep the order of their results."""
    flow = '(parallel-map (lambda (n) (begin (sleep (/ n 20)) (log-message "slept" n) n)) (list 3 1 2))'
    llc("run", "-e", flow, "--quiet", "--record", "side")
    text = (tmp_path / ".loops/tests/side.yaml").read_text()
    assert text.index("slept 1") < text.index("slept 2") < text.index("slept 3")
    assert "result_of: 2" in text
    llc("run", "-e", "(begin (sleep 0) (exit 7))", "--quiet", "--record", "leaves")
    llc("run", "-e", '(begin (sleep 0) (+ 1 "a"))', "--quiet", "--record", "fails")
    assert llc("test").stdout.endswith("3 cases: 3 passed\n")


def test_unfinished_run_gives_a_partial_case(llc: Llc, tmp_path: Path) -> None:
    """The case has no outcome, passes up to the end of its record, and states that."""
    llc("run", "fix", "--quiet")
    (folder,) = tmp_path.glob(".loops/.history/fix-*")
    (journal,) = folder.glob("*.jsonl")
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:7]))
    done = llc("record", str(folder))
    assert "is unfinished; the case ends" in done.stderr
    assert "outcome" not in (tmp_path / ".loops/tests/fix.yaml").read_text()
    assert llc("test").stdout.startswith("pass .loops/tests/fix.yaml (up to the end of its record)\n")


def test_interrupted_run_records_no_case(llc: Llc, tmp_path: Path) -> None:
    """The case would be incomplete; `llc record` creates it on request."""
    (tmp_path / ".loops/stops.yaml").write_text(
        "name: stops\ninitial: a\nstates:\n"
        "  a: {action: 'kill -INT $PPID; sleep 30', next: b}\n  b: {terminal: true}\n"
    )
    done = llc("run", "stops", "--record", "x")
    assert done.returncode == 130
    assert "no case is recorded" in done.stderr
    assert not (tmp_path / ".loops/tests/x.yaml").exists()
    assert llc("record", "stops", "-o", "x").returncode == 0
    assert llc("test").returncode == 0


@pytest.mark.parametrize(
    "world",
    [world for case in CASES for world in worlds(case)[:1]],
    ids=lambda world: f"{world.parent.name}-{world.stem}",
)
def test_cases_of_golden_runs_pass(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A case that is written and read back passes with the program compiled from the source."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    project = tmp_path / "project"
    run_world(world, project, monkeypatch)
    monkeypatch.chdir(project)
    (folder,) = project.glob(".loops/.history/*-*")
    case, _ = make_case.make(find.run_at(str(folder)))
    case_writer.write(case)
    (tested,) = run_cases.run_cases([case.path])
    assert tested.result == "pass", tested.detail()


def test_names_of_runs_and_cases_are_completed(llc: Llc, tmp_path: Path) -> None:
    """Cases by name and by path, runs by loop and by id; other files are left out."""
    from llc.runtime.cli import completers

    record_case(llc, tmp_path)
    (tmp_path / "ci").mkdir()
    llc("record", "fix", "-o", "ci/types.yaml")
    (tmp_path / "ci" / "other.yaml").write_text("name: other\n")
    assert completers.complete_case("cas") == ["case"]
    assert completers.complete_case("ci/") == ["ci/types.yaml"]
    assert completers.complete_case("c") == ["case", "cache/", "ci/"]
    (folder,) = tmp_path.glob(".loops/.history/fix-*")
    assert completers.complete_case_or_run("fi") == ["fix", folder.name]


# --- failing and updating ---------------------------------------------------------------------


def test_edited_source_fails_with_the_first_difference(llc: Llc, tmp_path: Path) -> None:
    """The report has the recorded and the new effect and its position; the exit code is 1."""
    record_case(llc, tmp_path)
    (tmp_path / ".loops/fix.yaml").write_text(LOOP.replace("echo mended", "echo patched"))
    done = llc("test")
    assert done.returncode == 1
    assert "FAIL .loops/tests/case.yaml\nerror[differs]: effect 2 differs from the recording\n" in done.stdout
    assert " --> .loops/fix.yaml:8:" in done.stdout
    assert "now:      shell `touch fixed; echo patched`" in done.stdout
    assert done.stdout.endswith("1 case: 1 failed\n")


def test_update_rewrites_the_case_if_recorded_results_suffice(llc: Llc, tmp_path: Path) -> None:
    """The results of a renamed state are kept; the trace is new."""
    before = record_case(llc, tmp_path)
    (tmp_path / ".loops/fix.yaml").write_text(
        LOOP.replace("mend:", "repair:").replace("on_failure: mend", "on_failure: repair")
    )
    assert llc("test").returncode == 1
    done = llc("test", "--update")
    assert (done.returncode, done.stdout) == (0, "updated .loops/tests/case.yaml\n1 case: 1 updated\n")
    after = (tmp_path / ".loops/tests/case.yaml").read_text()
    assert after == before.replace("mend,", "repair,").replace("mend}", "repair}")
    assert llc("test").returncode == 0


EVALUATED = """name: fix
llm: {model: claude-haiku-4-5}
initial: check
states:
  check:
    action: "echo checked"
    evaluate: {type: llm_structured, prompt: "Is it good?"}
    on_success: done
    on_failure: bad
    on_blocked: bad
    on_partial: bad
  done: {terminal: true}
  bad: {terminal: true}
"""


@pytest.mark.parametrize(
    ("before", "after"), [("Is it good?", "Is it very good?"), ("claude-haiku-4-5", "claude-sonnet-4-5")]
)
def test_update_keeps_the_verdict_of_a_changed_prompt(
    llc: Llc, tmp_path: Path, before: str, after: str
) -> None:
    """Also if the model of the evaluation has changed; the case has the new request."""
    script = tmp_path / "script.json"
    script.write_text(
        json.dumps(
            [{"kind": "shell", "output": "ok"}, {"kind": "evaluate", "verdict": "success", "confidence": 0.9}]
        )
    )
    record_case(llc, tmp_path, "fix", EVALUATED, "--script", str(script))
    (tmp_path / ".loops/fix.yaml").write_text(EVALUATED.replace(before, after))
    assert llc("test").returncode == 1
    done = llc("test", "--update")
    assert (done.returncode, done.stdout) == (0, "updated .loops/tests/case.yaml\n1 case: 1 updated\n")
    assert after in (tmp_path / ".loops/tests/case.yaml").read_text()
    assert llc("test").returncode == 0


def test_update_names_the_effect_that_is_not_recorded(llc: Llc, tmp_path: Path) -> None:
    """The case is not changed, and fails."""
    before = record_case(llc, tmp_path)
    (tmp_path / ".loops/fix.yaml").write_text(LOOP.replace("echo mended", "echo patched"))
    done = llc("test", "--update")
    assert done.returncode == 1
    assert "not updated: effect 2 is not recorded: shell `touch fixed; echo patched`" in done.stdout
    assert (tmp_path / ".loops/tests/case.yaml").read_text() == before


def test_missing_or_invalid_source_is_an_error(llc: Llc, tmp_path: Path) -> None:
    """The diagnostics have their positions; the other cases are tested."""
    record_case(llc, tmp_path)
    llc("run", "-e", "(+ 1 2)", "--quiet", "--record", "sum")
    (tmp_path / ".loops/fix.yaml").write_text(LOOP.replace("next: check", "next: chekc"))
    done = llc("test")
    assert done.returncode == 1
    assert "ERROR .loops/tests/case.yaml\nerror[unknown-state]: no state named `chekc`" in done.stdout
    assert done.stdout.endswith("2 cases: 1 passed, 1 error\n")
    os.unlink(tmp_path / ".loops/fix.yaml")
    assert "there is no file" in llc("test").stdout


def test_testing_without_cases_is_an_error(llc: Llc, tmp_path: Path) -> None:
    """Exit code 2: a test run without tests must not look like a success."""
    done = llc("test")
    assert done.returncode == 2
    assert "there are no recorded cases in .loops/tests/" in done.stderr
    record_case(llc, tmp_path)
    done = llc("test", "-k", "other")
    assert done.returncode == 2
    assert "none of 1 case has `other` in its path" in done.stderr
    assert llc("test", "-k", "CAS").returncode == 0
    assert "did you mean `case`?" in llc("test", "caes").stderr


def test_reports_for_scripts_and_ci(llc: Llc, tmp_path: Path) -> None:
    """`--json` has the difference as data; the JUnit XML is well-formed for any case."""
    record_case(llc, tmp_path)
    llc("run", "-e", "(+ 1 2)", "--quiet", "--record", "sum")
    (tmp_path / ".loops/fix.yaml").write_text(LOOP.replace("echo mended", "printf 'a\\\\x1b<&>'"))
    (tmp_path / ".loops/tests/zz.yaml").write_text('llc_case: 1\nsource: "a\\eb"\ntrace: 7\n')
    done = llc("test", "--json", "--junit", "report.xml")
    answer = json.loads(done.stdout)
    assert (answer["passed"], answer["failed"], answer["errors"]) == (1, 1, 1)
    assert answer["cases"][0]["difference"]["seq"] == 2
    assert answer["cases"][2]["error"]["diagnostics"][0]["line"] == 3
    suite = ElementTree.parse(tmp_path / "report.xml").getroot()[0]
    assert {name: suite.get(name) for name in ("tests", "failures", "errors")} == {
        "tests": "3",
        "failures": "1",
        "errors": "1",
    }
    assert [[child.tag for child in case] for case in suite] == [["failure"], [], ["error"]]
    assert "touch fixed; printf" in (suite[0][0].text or "")


# --- the format -------------------------------------------------------------------------------

HEAD = "llc_case: 1\nsource: x.yaml\n"


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("", "the document is empty", 1),
        ("[1, 2]", "a case is a mapping", 1),
        ("name: fix\n", "this file is not a recorded case", 1),
        ("llc_case: 2\n", "a case of format 2 cannot be read", 1),
        ("llc_case: true\n", "a case of format true cannot be read", 1),
        ("llc_case: 1\ntrace: []\n", "either a `source` or an `expression`", 1),
        (HEAD + "expression: (+ 1 2)\ntrace: []\n", "either a `source` or an `expression`", 1),
        ("llc_case: 1\nsource: [x]\ntrace: []\n", "`source` should be a text", 2),
        (HEAD, "a case needs `trace`", 1),
        (HEAD + "trace: 5\n", "`trace` should be a list of events", 3),
        (HEAD + "tracee: []\ntrace: []\n", "a case has no key `tracee`", 3),
        (HEAD + "options: {max: 3}\ntrace: []\n", "`options` has no key `max`", 3),
        (HEAD + "options: {context: {a: 3}}\ntrace: []\n", "`context.a` should be a text", 3),
        (HEAD + "normalized: [tiems]\ntrace: []\n", "`normalized[0]` cannot be `tiems`", 3),
        (HEAD + "ticks: -1\ntrace: []\n", "`ticks` should be at least 0", 3),
        (HEAD + "trace:\n  - 7\n", "`trace` should be a list of mappings", 4),
        (HEAD + "trace:\n  - {log: {message: a}, route: {}}\n", "an event is a note by its kind", 4),
        (HEAD + "trace:\n  - {log: hello}\n", "`log` should be a mapping", 4),
        (HEAD + "trace:\n  - {effect: 7}\n", "`effect` should be a text", 4),
        (HEAD + "trace:\n  - {effect: shell, arg: {}}\n", "an effect has no key `arg`", 4),
        (HEAD + "trace:\n  - {effect: shell, args: [a]}\n", "`args` should be a mapping", 4),
        (HEAD + "trace:\n  - {effect: shell, result: done}\n", "`result` should be a mapping", 4),
        (HEAD + "trace:\n  - {result_of: 1, result: {}}\n", "effect 1 is not requested before", 4),
        (
            HEAD + "trace:\n  - {effect: shell, result: {}}\n  - {result_of: 1, result: {}}\n",
            "effect 1 has a result already",
            5,
        ),
        (HEAD + "trace: []\noutcome: {stauts: success}\n", "`outcome` has no key `stauts`", 4),
        (HEAD + "trace:\n  - {log: {message: {$blob: ../../../etc/passwd, size: 1}}}\n", "no usable name", 4),
        (HEAD + f"trace:\n  - {{log: {{message: {{$blob: {'a' * 64}, size: 1}}}}}}\n", "cannot be read", 4),
        (HEAD + "trace:\n  - {log: {message: {$json: '{'}}}\n", "not a valid value", 4),
        (HEAD + "trace:\n  - {log: {message: {$blob: 7, size: 1}}}\n", "not a valid value", 4),
        (HEAD + "trace:\n  - {log: {message: {$float: 'x'}}}\n", "not a valid value", 4),
        (HEAD + "trace: &a\n  - {log: {message: *a}}\n", "contain itself", 4),
        (HEAD + "trace:\n  - {effect: shell\n", "is expected here", 5),
        ("llc_case: 1\x00\n", "is not allowed in YAML", 1),
    ],
)  # fmt: skip
def test_invalid_case_is_reported_with_its_line(tmp_path: Path, text: str, message: str, line: int) -> None:
    """A case is untrusted input: any content is either read or refused."""
    path = tmp_path / "case.yaml"
    path.write_text(text)
    with pytest.raises(CompileError) as caught:
        case_reader.read(str(path))
    diagnostic = caught.value.diagnostics[0]
    assert message in diagnostic.message
    assert diagnostic.span is not None
    assert diagnostic.span.line == line


TEXTS = st.text(max_size=12) | st.sampled_from(
    ["a\nb\n", " \n x", "$blob", "\0", "\ud800", "x" * 5000, "no", "1e3"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=10,
)
FIELDS = st.dictionaries(st.sampled_from(["output", "elapsed_ms", "error", "value"]), VALUES, max_size=4)


@settings(max_examples=tried(50))
@given(st.lists(st.tuples(FIELDS, FIELDS), max_size=4), VALUES)
def test_written_case_reads_back(rows: list[tuple[dict[str, Any], dict[str, Any]]], value: Any) -> None:
    """Notes, arguments, results and the outcome are unchanged after writing and reading a case."""
    import tempfile

    texts: dict[str, str] = {}

    def store(text: str) -> dict[str, Any]:
        packed = codec.digest_only(text)
        texts[packed["$blob"]] = text
        return packed

    recording = Recording("any", {}, lambda name, size: texts[name])
    for seq, (args, result) in enumerate(rows, 1):
        recording.events.append(Note("log", make_case.pack_map(args, store)))
        recording.events.append(EffectRequest(seq, "shell", make_case.pack_map(args, store)))
        recording.give(Answer(seq, make_case.pack_map(result, store)))
    recording.end = make_case.pack_map({"status": "success", "value": value}, store)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "case.yaml")
        case_writer.write(Case(path, "x.yaml", None, {}, (), 0, recording))
        read_back = case_reader.read(path).recording
        assert len(read_back.events) == len(recording.events)
        assert all(map(diff.is_same, recording.events, read_back.events))
        for old, new in zip(recording.answers, read_back.answers, strict=True):
            assert json_of(recording.result(old)) == json_of(read_back.result(new))
        assert read_back.events_before == recording.events_before
        assert read_back.end is not None
        assert diff.is_same(read_back.end, recording.end)


def json_of(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def test_deep_values_and_long_texts_read_back(tmp_path: Path) -> None:
    """Deep values are stored as JSON, long texts in files that are removed when no longer needed."""
    deep: Any = "x"
    for _ in range(300):
        deep = [deep]
    recording = Recording("deep", {}, lambda name, size: "")
    recording.events.append(EffectRequest(1, "jq", {"program": ".", "input": "y" * 10_000}))
    recording.give(Answer(1, {"value": deep}))
    path = tmp_path / "case.yaml"
    case = Case(str(path), "x.yaml", None, {}, (), 0, recording)
    case_writer.write(case)
    read_back = case_reader.read(str(path)).recording
    assert read_back.result(read_back.answers[0]) == {"value": deep}
    assert [len(file.read_text()) for file in (tmp_path / "case.outputs").iterdir()] == [10_000]
    recording.events[0] = EffectRequest(1, "jq", {"program": ".", "input": "y"})
    case_writer.write(case)
    assert not (tmp_path / "case.outputs").exists()


def test_oversized_case_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing and reading have the same size limit."""
    monkeypatch.setattr(case_writer, "_MAX_CASE_BYTES", 1000)
    recording = Recording("long", {}, lambda name, size: "")
    recording.events += [EffectRequest(number, "jq", {"program": "."}) for number in range(100)]
    case = Case(str(tmp_path / "case.yaml"), "x.yaml", None, {}, (), 0, recording)
    with pytest.raises(UserError) as refused:
        case_writer.write(case)
    assert refused.value.id == "case-too-large"
    assert list(tmp_path.iterdir()) == []


def test_changed_text_file_is_reported(llc: Llc, tmp_path: Path) -> None:
    """The file name of a text is its digest."""
    text = record_case(
        llc,
        tmp_path,
        "long",
        "name: long\ninitial: a\nstates:\n  a: {action: 'seq 9000', next: b}\n  b: {terminal: true}\n",
    )
    assert "$blob" in text
    (text_file,) = (tmp_path / ".loops/tests/case.outputs").iterdir()
    assert llc("test").returncode == 0
    text_file.write_text("1\n")
    done = llc("test")
    assert done.returncode == 1
    assert "is damaged" in done.stdout
    assert "--> .loops/tests/case.yaml:" in done.stdout


def test_concurrent_calls_that_exit_or_fail_are_recorded(llc: Llc, tmp_path: Path) -> None:
    """The case has the results in their recorded order."""
    exits = """(parallel-map
      (lambda (n)
        (begin (log-message "in" n) (sleep (/ n 10)) (if (= n 2) (exit 7) n) (log-message "out" n) n))
      (list 3 1 2))"""
    fails = exits.replace("(exit 7)", '(+ 1 "a")')
    assert llc("run", "-e", exits, "--record", "leaves", "--quiet").returncode == 7
    assert llc("run", "-e", fails, "--record", "fails", "--quiet").returncode == 1
    assert llc("test").stdout.endswith("2 cases: 2 passed\n")
    last = json.loads(llc("trace", ".loops/tests/leaves.yaml", "--json").stdout.splitlines()[-1])
    assert last["effect"]["kind"] == "exit"
