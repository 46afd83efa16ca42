"""`llc task` and `/task`: real processes, a local Messages API, a result for every outcome."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import fork_server
import pytest
from keepers import kill_with_keeper

LLC = "import sys\nfrom llc.runtime.cli.entry import main\nsys.exit(main())"
ENTITLE = """<task type="atomic" name="user:entitle">
  <description>Find a title.</description>
  <inputs>
    <input name="text" type="string">What it is for.</input>
    <input name="short" type="boolean" required="false"/>
  </inputs>
  <instructions>Find a title for {{text}} {{short}}</instructions>
</task>
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    (folder / ".loops" / "tasks").mkdir(parents=True)
    (folder / ".loops" / "tasks" / "entitle.xml").write_text(ENTITLE)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def llc_(*words: str, text: str = "", **more: Any) -> subprocess.CompletedProcess[str]:
    """llc in a process of its own; text: its input."""
    if not text and not more:
        return fork_server.programs().run(*words)
    return subprocess.run(
        [sys.executable, "-c", LLC, *words],
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **more,
    )


def task_result(*words: str) -> tuple[int, dict[str, Any]]:
    done = llc_("task", *words)
    return done.returncode, json.loads(done.stdout)


def test_a_task_is_performed_by_its_model(project: Path, messages_server: Any, answers: Any) -> None:
    """The parameters are in the prompt, the reply is the content, and the notes have the cost."""
    messages_server.then(answers.text("Small Steps"))
    code, output = task_result("user:entitle", "text=a diary", "--short", "--json")
    assert (code, output["status"], output["content"]) == (0, "COMPLETE", "Small Steps")
    assert "title for a diary true" in json.dumps(messages_server.requests[0])
    assert output["notes"]["usage"]["tokens"] == 150
    assert output["notes"]["run"].startswith("user-entitle-")


def test_stdout_has_only_the_content(project: Path, messages_server: Any, answers: Any) -> None:
    """Status, cost and progress go to standard error."""
    messages_server.then(answers.text("Small Steps"))
    done = llc_("task", "user:entitle", "text=x")
    assert done.stdout == "Small Steps\n"
    assert "COMPLETE (0.0003 USD, 150 tokens" in done.stderr
    assert llc_("task", "user:entitle", "text=x", "--quiet").stdout == "Small Steps\n"


def test_a_failed_call_is_a_failed_result(project: Path, messages_server: Any, answers: Any) -> None:
    """The task's reason and message are printed once; the exit code is 1."""
    messages_server.then(answers.status(400, "no such thing"))
    code, output = task_result("user:entitle", "text=x", "--json")
    assert (code, output["status"]) == (1, "FAILED")
    assert output["notes"]["error"]["reason"] == "subtask_failure"
    done = llc_("task", "user:entitle", "text=x", "--quiet")
    assert (done.returncode, done.stdout.count("no such thing")) == (1, 1)
    assert "no such thing" not in done.stderr


@pytest.mark.parametrize(
    ("words", "reason", "message", "code"),
    [
        (("user:entitl",), "input_validation_failure", "no task or tool is called `user:entitl`", 2),
        (("user:entitle",), "input_validation_failure", "`user:entitle` needs `text`", 2),
        (("user:entitle", "text=x", "--wat"), "input_validation_failure", "has no parameter `wat`", 2),
        (("(+ 1",), "input_validation_failure", "never closed", 2),
        (("(+ 1 nothing)",), "input_validation_failure", "`nothing` is not bound", 2),
        (("(/ 1 0)",), "subtask_failure", "1 divided by zero", 1),
        (('(error "own" "words")',), "subtask_failure", "own", 1),
        (("(exit 7)",), "subtask_failure", "exit code 7", 7),
        (("--jobs", "2", "(let f () (f))", "--fuel", "1000"), "subtask_failure", "", 3),
    ],
)
def test_every_error_is_a_failed_result(
    project: Path, words: tuple[str, ...], reason: str, message: str, code: int
) -> None:
    """The reason names the kind of mistake, and the exit code is that of `run`."""
    exit_code, output = task_result("--json", *words)
    error = output["notes"]["error"]
    assert (exit_code, output["status"], error["reason"]) == (code, "FAILED", reason)
    assert message in error["message"]


def test_invalid_options_are_a_failed_result(project: Path) -> None:
    """The command line itself reads the options before the name."""
    code, output = task_result("--json", "--jobs", "none", "user:entitle")
    assert (code, output["notes"]["error"]["reason"]) == (2, "input_validation_failure")
    code, output = task_result("--json")
    assert (code, output["status"]) == (2, "FAILED")


def test_a_nested_failure_is_reported_once(project: Path) -> None:
    """Its message is once in the result, and is short."""
    text = '(define (f n) (if (= n 0) (error "deep" "down") (+ 1 (f (- n 1))))) (f 50)'
    done = llc_("task", text, "--json")
    assert done.stdout.count("deep") == 2  # content and message
    assert len(done.stdout) < 2000
    huge = llc_("task", f'(error "x" "{"y" * 50_000}")', "--json")
    assert len(huge.stdout) < 5000


def test_a_plain_value_is_wrapped_in_a_result(project: Path) -> None:
    """As content and as data; a task result is unchanged, and null is an empty content."""
    assert task_result("(list 1 2)", "--json")[1]["parsedContent"] == [1, 2]
    output = task_result("""'(dict ("status" "COMPLETE") ("content" "x"))""", "--json")[1]
    assert (output["content"], "parsedContent" in output) == ("x", False)
    done = llc_("task", "null")
    assert done.returncode == 2
    done = llc_("task", "(log-message 1)")
    assert (done.returncode, done.stdout) == (0, "")


def test_a_tool_is_called_with_arguments(project: Path) -> None:
    """A built-in tool, and a tool of `--declare` in a scripted world."""
    done = llc_("task", "system:execute_shell_command", "command=echo 'a b'", "--json")
    assert json.loads(done.stdout)["stdout"] == "a b\n"
    (project / "world.yaml").write_text("rules: [{kind: tool, result: {value: 5}}]\n")
    done = llc_("task", "math:add", "x=2", "--declare", "math:add(x,y)", "y=3", "--script", "world.yaml")
    assert done.stdout == "5\n", done.stderr


def test_a_killed_task_can_be_resumed(project: Path) -> None:
    """Finished actions are not repeated."""
    text = (
        '(system:execute_shell_command (command "echo a >> done"))'
        ' (system:execute_shell_command (command "test -e go || { touch begun; sleep 60; }; echo b >> done"))'
    )
    process = subprocess.Popen(
        [sys.executable, "-c", LLC, "task", text, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    end = time.monotonic() + 60
    while not (project / "begun").exists() and time.monotonic() < end:
        time.sleep(0.02)
    kill_with_keeper(process)
    process.communicate()
    (project / "go").touch()
    done = llc_("resume", "expression", "--json")
    assert json.loads(done.stdout)["status"] == "success"
    assert (project / "done").read_text() == "a\nb\n"


def test_a_task_runs_in_the_background_and_in_a_queue(project: Path) -> None:
    """The log ends with the result."""
    before = json.loads(llc_("task", "--background", "--json", '(ask "before?")').stdout)
    refused = llc_("task", '(ask "behind?")', "--json", "--background")
    assert json.loads(refused.stdout)["notes"]["error"]["details"]["kind"] == "scope-conflict"
    behind = json.loads(llc_("task", '(ask "behind?")', "--json", "--background", "--queue").stdout)
    for facts, text in ((before, "one"), (behind, "two")):
        end = time.monotonic() + 60
        while llc_("answer", facts["run"], text).returncode and time.monotonic() < end:
            time.sleep(0.1)
        log = project / ".loops" / ".history" / facts["run"] / "expression.log"
        while not (log.exists() and log.read_text().endswith(f"\n{text}\n")):
            assert time.monotonic() < end
            time.sleep(0.05)
    assert json.loads(llc_("status", before["run"], "--json").stdout)["value"] == "one"


def test_a_usage_error_of_a_background_task_is_printed(project: Path) -> None:
    """No run is started."""
    code, output = task_result("--background", "--json", "user:entitle")
    assert (code, output["notes"]["error"]["reason"]) == (2, "input_validation_failure")
    assert not (project / ".loops" / ".running").exists()


def test_ctrl_c_leaves_a_run_and_a_result(project: Path) -> None:
    """The result has the command that resumes the run; the exit code is 130."""
    process = subprocess.Popen(
        [sys.executable, "-c", LLC, "task", "(begin (log-message 1) (sleep 60))", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert process.stderr.readline()
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)
    output = json.loads(out)
    assert process.returncode == 130
    assert output["notes"]["error"]["message"] == "the run was interrupted"
    assert output["notes"]["error"]["details"]["help"] == f"llc resume {output['notes']['run']}"


def test_help_prints_the_parameters(project: Path) -> None:
    """After the name of a task the parameters of the task, before it the options of the subcommand."""
    shown = llc_("task", "user:entitle", "--help").stdout
    assert shown.startswith("Usage: llc task user:entitle text=… [--short]\n")
    assert "text  string: What it is for." in shown
    assert "Examples:" in llc_("task", "--help").stdout


@pytest.mark.parametrize(
    ("words", "completion"),
    [
        ("llc task user:ent", "user:entitle"),
        ("llc task system:li", "system:list_directory"),
        ("llc task user:entitle te", "text="),
        ("llc task user:entitle text=x ", "--short"),
    ],
)
def test_names_and_parameters_are_completed(project: Path, words: str, completion: str) -> None:
    """Tasks, tools, and the parameters of the task."""
    env = {**os.environ, "_LLC_COMPLETE": "complete_bash", "COMP_WORDS": words}
    env["COMP_CWORD"] = str(len(words.split(" ")) - 1)
    code = LLC.replace("import sys", "import sys; sys.argv = ['llc']", 1)
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert completion in done.stdout.split("\n"), done.stderr


def test_a_session_performs_tasks(project: Path, messages_server: Any, answers: Any) -> None:
    """Tasks of the project and of the session; the content goes to stdout, `it` is the result."""
    messages_server.then(answers.text("Small Steps"))
    text = (
        "/task user:entitle text='a diary' --short\n"
        '(get-field it "status")\n'
        '(defatom own:say (params p) (instructions "Say {{p}}"))\n'
        '/task own:say p={"a": [1, 2]}\n'
        "/task '(list 1\n 2)'\n"
    )
    done = llc_("repl", text=text)
    assert done.stdout.splitlines()[:2] == ["Small Steps", '"COMPLETE"']
    assert "Say {" in messages_server.requests[1]["messages"][0]["content"][0]["text"]
    assert done.stdout.endswith("[\n  1,\n  2\n]\n")
    assert done.returncode == 0


def test_a_session_reports_an_invalid_task_line(project: Path) -> None:
    """As `llc task` does; the last line determines the exit code."""
    done = llc_("repl", text="/task user:entitle --help\n")
    assert done.stdout.startswith("Usage: /task user:entitle text=… [--short]\n")
    done = llc_("repl", text="/task\n/task nothing:here\n/task (/ 1 0)\n/task user:entitle --json\n")
    assert done.returncode == 1
    assert "write /task NAME" in done.stderr
    assert "FAILED (input_validation_failure)" in done.stderr
    assert "FAILED (subtask_failure)" in done.stderr
    assert json.loads(done.stdout)["notes"]["error"]["message"] == "`user:entitle` needs `text`"
