"""Flows that call tools and tasks on the command line: declared, recorded, pinned and scripted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from in_process import run_llc
from keepers import kill_with_keeper

import llc as package
from llc.runtime.effects.script_reader import load_world

Llc = Callable[..., subprocess.CompletedProcess[str]]

TOOLS = """
tools:
  - name: my:say
    parameters: {word: string}
    command: [echo, "one ${word}"]
"""
TASK = """<task type="atomic" name="my:say">
  <inputs><input name="word"/></inputs><instructions>x</instructions>
</task>
"""


@pytest.fixture
def llc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Llc:
    """Run llc in a project."""
    (tmp_path / ".loops" / "tasks").mkdir(parents=True)
    (tmp_path / ".loops" / "say.sexp").write_text('(my:say "word")\n')
    # Tasks fail at once: no test here is about what a model says.
    (tmp_path / ".loops" / "config.yaml").write_text("tasks: {runner: agent, agent: ['false']}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("NO_COLOR", "FORCE_COLOR", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)

    return run_llc


def value(done: subprocess.CompletedProcess[str]) -> Any:
    output = json.loads(done.stdout)
    assert output["error"] is None, output
    return output["value"]


def entries(folder: Path) -> int:
    return len(list((folder / ".loops" / ".cache").glob("*.cached")))


def test_a_change_of_a_tool_recompiles_the_flow(llc: Llc, tmp_path: Path) -> None:
    """A flow that calls tools is cached, and a changed `tools.yaml` gives another program."""
    tools = tmp_path / ".loops" / "tools.yaml"
    tools.write_text(TOOLS)
    assert value(llc("run", "say", "--json")) == "one word"
    assert entries(tmp_path) == 1
    assert value(llc("run", "say", "--json")) == "one word"
    assert entries(tmp_path) == 1
    tools.write_text(TOOLS.replace("one", "two"))
    os.utime(tools, (0, 0))
    assert value(llc("run", "say", "--json")) == "two word"
    tools.unlink()
    done = llc("run", "say", "--json")
    assert done.returncode == 2
    assert "unknown-task" in done.stderr


def test_a_new_tool_recompiles_the_flow(llc: Llc, tmp_path: Path) -> None:
    """A new `tools.yaml`, and a changed file of a task."""
    task = tmp_path / ".loops" / "tasks" / "say.xml"
    task.write_text(TASK)
    assert value(llc("run", "say", "--json"))["status"] == "FAILED"
    assert entries(tmp_path) == 1
    (tmp_path / ".loops" / "tools.yaml").write_text(TOOLS)
    assert value(llc("run", "say", "--json")) == "one word"
    task.write_text(TASK.replace("my:say", "my:other"))
    (tmp_path / ".loops" / "say.sexp").write_text('(my:other "word")\n')
    assert value(llc("run", "say", "--json"))["status"] == "FAILED"


def test_a_change_of_a_task_gives_another_program(llc: Llc, tmp_path: Path) -> None:
    """Its instructions are part of the program."""
    task = tmp_path / ".loops" / "tasks" / "say.xml"
    hashes = set()
    for words in ("x", "y", "x"):
        task.write_text(TASK.replace(">x<", f">{words}<"))
        llc("run", "say")
        (run,) = (tmp_path / ".loops" / ".history").glob("*/*.jsonl")
        hashes.add(json.loads(run.read_text().splitlines()[0])["program_hash"])
        llc("clean", "--keep", "0")
        subprocess.run(["rm", "-rf", tmp_path / ".loops" / ".history"], check=True)
    assert len(hashes) == 2


def test_a_running_program_keeps_its_tools(llc: Llc, tmp_path: Path) -> None:
    """A resumed run uses the definitions of its start."""
    slow = "  - {name: my:slow, command: 'test -e again || { touch again; sleep 60; }'}\n"
    (tmp_path / ".loops" / "tools.yaml").write_text(TOOLS + slow)
    (tmp_path / ".loops" / "say.sexp").write_text('(my:slow)\n(my:say "word")\n')
    process = subprocess.Popen([sys.executable, "-m", "llc", "run", "say", "-q"], stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (tmp_path / "again").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    kill_with_keeper(process)
    process.wait()
    (tmp_path / ".loops" / "tools.yaml").write_text(TOOLS.replace("one", "two"))
    done = llc("resume", "say", "--json")
    assert value(done) == "one word", done.stderr


def test_names_are_declared_on_the_command_line(llc: Llc, tmp_path: Path) -> None:
    """For `run`, `validate` and `compile`; a scripted world has their results."""
    (tmp_path / "world.yaml").write_text(
        "- {tool: far:add, args: {x: 10}, value: 15}\n- {task: t, content: hi}\n"
    )
    text = "(list (far:add 10 5) (get (t (q 1)) 'content))"
    declare = ["--declare", "far:add(x,y)", "--declare=task t"]
    done = llc("run", "-e", text, *declare, "--script", "world.yaml", "--json")
    assert value(done) == [15, "hi"], done.stderr
    (tmp_path / ".loops" / "say.sexp").write_text(text)
    assert llc("validate", "say").returncode == 2
    assert llc("validate", "say", *declare).returncode == 0
    assert "far:add" in llc("compile", "say", *declare).stdout
    assert llc("run", "say", "--declare", "1 2").returncode == 2


def test_a_declared_tool_without_a_definition_is_a_fault(llc: Llc) -> None:
    done = llc("run", "-e", "(far:add (x 1))", "--declare", "far:add")
    assert done.returncode == 1
    assert "error[unknown-tool]: `far:add`" in done.stderr
    assert "<expression>:1:1" in done.stderr


def test_all_declarations_are_validated(llc: Llc, tmp_path: Path) -> None:
    """Also declarations that no flow uses; `tools.yaml` is not a loop."""
    (tmp_path / ".loops" / "say.sexp").write_text("1\n")
    (tmp_path / ".loops" / "tools.yaml").write_text("- {name: a, comand: [x]}\n")
    (tmp_path / ".loops" / "tasks" / "bad.xml").write_text("<task/>")
    done = llc("validate", "--json")
    output = json.loads(done.stdout)
    assert done.returncode == 2
    text = json.dumps(output)
    assert "comand" in text
    assert "bad.xml" in text
    assert "tools" not in json.loads(llc("list", "--json").stdout)[0]["name"]
    (tmp_path / ".loops" / "say.sexp").unlink()
    assert json.loads(llc("validate", "--json").stdout)["errors"] == output["errors"]


def test_tools_are_listed(llc: Llc, tmp_path: Path) -> None:
    """Built-in tools, tools and tasks of the project, with their parameters."""
    (tmp_path / ".loops" / "tools.yaml").write_text(TOOLS)
    (tmp_path / ".loops" / "tasks" / "t.xml").write_text(TASK.replace("my:say", "user:t"))
    rows = {row["name"]: row for row in json.loads(llc("tools", "--json").stdout)}
    assert {"system:write_file", "my:say", "user:t"} <= set(rows)
    assert rows["my:say"]["parameters"] == [
        {"name": "word", "type": "string", "required": True, "description": ""}
    ]
    assert rows["user:t"]["kind"] == "task"
    assert "(my:say (word …))" in llc("tools").stdout
    assert "declared in .loops/tools.yaml" in llc("tools", "my:say").stdout
    assert "did you mean `my:say`?" in llc("tools", "my:sya").stderr


def test_a_tool_call_is_shown(llc: Llc, tmp_path: Path) -> None:
    """With its arguments, output and error."""
    (tmp_path / ".loops" / "tools.yaml").write_text(TOOLS)
    done = llc("run", "-e", '(my:say "word") (try (system:list_directory "none") (catch e 1))')
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert lines[:2] == ['→ my:say (word "word")', "│ one word"]
    assert "✗ `none` does not exist" in lines


def test_a_loop_calls_a_function_that_uses_tools(llc: Llc, tmp_path: Path) -> None:
    (tmp_path / ".loops" / "tools.yaml").write_text(TOOLS)
    (tmp_path / ".loops" / "own.sexp").write_text('(define (speak word) (my:say (word word)) "done")\n')
    (tmp_path / ".loops" / "talk.yaml").write_text(
        "name: talk\ninitial: say\nstates:\n"
        "  say:\n    call: own.sexp#speak\n    args: {word: hi}\n    next: done\n"
        "  done: {terminal: true}\n"
    )
    done = llc("run", "talk", "--json")
    assert done.returncode == 0, done.stderr + done.stdout
    assert "one hi" in done.stderr


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("{tool: a, task: b}", "exclude each other"),
        ("{tool: a, command: b}", "exclude each other"),
        ("{kind: shell, tool: a}", "exclude each other"),
        ("{args: {x: 1}}", "`args` is for"),
        ("{tool: a, output: x}", "has no key `output`"),
        ("{task: a, status: DONE}", "`COMPLETE`"),
        ("{tool: 5, value: 1}", ""),
    ],
)
def test_a_contradictory_rule_is_refused(tmp_path: Path, rule: str, message: str) -> None:
    path = tmp_path / "world.yaml"
    path.write_text(f"- {rule}\n")
    if not message:
        load_world(str(path))
        return
    with pytest.raises(package.CompileError, match=message):
        load_world(str(path))


def test_python_calls_declared_tools(tmp_path: Path) -> None:
    """`llc.evaluate` with its own world."""
    path = tmp_path / "world.yaml"
    path.write_text("- {tool: far:add, error: {kind: broken, message: no}}\n")
    text = "(try (far:add (x 1)) (catch e (get e 'kind)))"
    world = load_world(str(path))
    assert package.evaluate(text, world=world, declare=["far:add"]) == "broken"


def test_a_loop_without_calls_accepts_no_declarations(llc: Llc, tmp_path: Path) -> None:
    (tmp_path / ".loops" / "own.sexp").write_text("(define (speak) (far:say (word 1)) 2)\n")
    text = "name: talk\ninitial: say\nstates:\n  say:\n    {does}\n    next: done\n  done: {terminal: true}\n"
    loop = tmp_path / ".loops" / "talk.yaml"
    loop.write_text(text.replace("{does}", "action: echo hi"))
    assert "bad-override" in llc("compile", "talk", "--declare", "far:say").stderr
    loop.write_text(text.replace("{does}", "call: own.sexp#speak"))
    assert llc("compile", "talk", "--declare", "far:say").returncode == 0
    assert "unknown-task" in llc("compile", "talk").stderr
    (tmp_path / ".loops" / "plain.yaml").write_text(text.replace("{does}", "action: echo hi"))
    (tmp_path / ".loops" / "say.sexp").write_text("1")
    assert llc("validate", "--declare", "far:say").returncode == 0


def test_a_dry_run_names_the_tools(llc: Llc, tmp_path: Path) -> None:
    """By function and state; no tool is called."""
    (tmp_path / ".loops" / "tools.yaml").write_text(TOOLS)
    (tmp_path / ".loops" / "say.sexp").write_text('(my:say "a") (system:run_script "touch ran")')
    done = llc("run", "say", "--dry-run")
    assert "tool: my:say" in done.stdout
    assert "system:run_script" in done.stdout
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(("command", "status"), [("echo hi", "COMPLETE"), ("echo hi; exit 3", "FAILED")])
def test_the_result_of_a_command_is_a_task_result(
    llc: Llc, tmp_path: Path, command: str, status: str
) -> None:
    """It has status, content and notes."""
    (tmp_path / ".loops" / "shell.sexp").write_text(
        f'(define r (system:execute_shell_command "{command}"))\n'
        '(list (get-field r "status") (get-field r "content") (get-field r "stdout")\n'
        '      (get-field r "notes.exit_code") (get-field r "notes.stdout")\n'
        '      (get-field r "notes.error.message"))\n'
    )
    code, message = (0, None) if status == "COMPLETE" else (3, "exit code 3")
    assert value(llc("run", "shell", "--json")) == [status, "hi\n", "hi\n", code, "hi\n", message]


PROGRAM = """
(defatom user:judge
  (subtype 'evaluation)
  (params (status str) (exit_code int) (stdout (optional str)) (notes dict)
          (files '(optional list)) (strict bool?))
  (instructions "{{status}} {{exit_code}} {{stdout}} {{notes.exit_code}} {{files}} {{strict}}")
  (output_format '((type "json") (schema "src.system.models.StructuredAnalysisResult")))
  (history_config '((use_session_history true) (history_turns_to_include nil))))
(define (sh command) (system:execute_shell_command (command command) (timeout 60)))
(iterative-loop
  (max-iterations 4)
  (initial-input '((command "echo 1 > n.txt")))
  (test-command "test \\"$(cat n.txt)\\" -ge 2")
  (executor (lambda (input i) (sh (get-field input 'command))))
  (validator (lambda (command i) (sh command)))
  (controller (lambda (done check input i)
    (let ((judged (get-field (user:judge (status (get-field check 'status))
                               (exit_code (get-field check 'exit_code))
                               (stdout (get-field done 'content)) (notes (get-field check 'notes)))
                    'parsedContent)))
      (if (get-field judged 'success)
          (list 'stop (list i (get-field done 'status) (get-field check 'notes.exit_code)))
          (list 'continue (list (list 'command (get-field judged 'next_input)))))))))
"""
JUDGE = """printf '%s\\n' "$@" > prompt.txt
if [ "$(cat n.txt)" -ge 2 ]; then echo '{"success": true, "analysis": "enough"}'
else echo '{"success": false, "analysis": "too few", "next_input": "echo 2 > n.txt"}'; fi
"""


def test_a_program_of_tasks_and_commands(llc: Llc, tmp_path: Path) -> None:
    """Results of commands are inputs of a task, whose parsed reply is the input of the next iteration."""
    (tmp_path / "judge.sh").write_text(JUDGE)
    (tmp_path / ".loops" / "config.yaml").write_text("tasks: {runner: agent, agent: [sh, judge.sh]}\n")
    (tmp_path / ".loops" / "program.sexp").write_text(PROGRAM)
    assert value(llc("run", "program", "--json")) == [2, "COMPLETE", 0]
    assert "COMPLETE 0" in (tmp_path / "prompt.txt").read_text()
