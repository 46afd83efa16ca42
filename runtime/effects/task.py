"""Performer of the `task` effect: an atomic task, performed by a model or by an agent program.

Owns the order of the steps (settings, inputs, files, prompt, call, output) and the conversion of every
outcome to a TaskResult. Must not contain: the format of requests (`models`). See `spec/tasks.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...ir.results import TaskError, TaskResult, unstructure
from ..host import clock
from ..host.effect_context import Context
from ..host.paths import ROOT
from ..journal.totals import amount
from ..models import prompt_files, structured_output
from ..models.client import ModelClient, add_usage
from ..models.conversation import Turns, bounded
from ..models.prompt import JSON_ONLY, BadInput, field_of, fill, json_output, message
from ..models.prompt_files import BadPath, PromptFile
from ..project import configuration, models
from ..project.settings import Configuration
from .agents import agent
from .performers import Parts, turns_of
from .process import Runner
from .shell import Shell, shell_of
from .tools.tool import in_shell

if TYPE_CHECKING:
    from ..models.worker_pool import SharedWorkers

    Answer = dict[str, Any]

# Maximum number of files from memory for a task.
MAX_REMEMBERED_FILES = 10
_REPAIR = "That cannot be used: {problem}. Give the whole result again, with nothing wrong in it."


class Failed(Exception):
    """A task has failed. reason: a TaskError reason. details: further facts for the TaskError."""

    def __init__(self, reason: str, message: str, **details: Any) -> None:
        self.reason = reason
        self.message = message
        self.details = details
        super().__init__(reason, message)


def perform(args: Answer, context: Context, parts: Parts) -> Answer:
    """Perform a `task` effect."""
    return tasks_of(parts).perform(args, context)


def tasks_of(parts: Parts) -> Tasks:
    def recall(args: Answer, context: Context) -> Answer:
        return parts.perform_kind("context", args, context)

    return parts.keep_for_run("tasks", lambda: Tasks(shell_of(parts), turns_of(parts), recall, parts.workers))


class Tasks:
    """Performs the `task` effects of one run.

    recall: performs a `context` effect, to find files in memory. shared: see `ModelClient`.
    """

    def __init__(
        self,
        shell: Shell,
        turns: Turns,
        recall: Callable[[Answer, Context], Answer],
        shared: SharedWorkers | None = None,
    ) -> None:
        self._shell = shell
        self._turns = turns
        self._recall = recall
        self._client = ModelClient(shared=shared)
        self._settings: Configuration | None = None

    def close(self) -> None:
        self._client.close()

    @property
    def settings(self) -> Configuration:
        """The configuration of the project at the time of the first task. Raises `Failed`."""
        if self._settings is None:
            try:
                self._settings = configuration.load_usable(ROOT)
            except configuration.Unusable as error:
                raise Failed("subtask_failure", str(error)) from None
        return self._settings

    def perform(self, args: dict[str, Any], context: Context) -> Answer:
        """Perform a task; return {result}, a TaskResult in any case, with `usage` after a call."""
        started_at = clock.monotonic()
        task = _Task(self, args, context)
        try:
            answer = task.perform()
        except Failed as failure:
            details = {"task": args["name"], **failure.details}
            result = failed(failure.reason, failure.message, details, task.notes)
            answer = {"result": result, **task.used}
        if task.criteria:
            answer["result"]["criteria"] = task.criteria
        answer["duration_ms"] = round((clock.monotonic() - started_at - task.waited_s) * 1000)
        answer["elapsed_ms"] = context.elapsed_ms()
        if task.timed_out is not None:
            answer["timed_out"] = task.timed_out
        self._turns.observe(args, answer)
        return answer

    # --- services for `_Task` ---------------------------------------------------------------------

    def complete(self, model: models.Model, request: Answer, context: Context, limits: Answer) -> Answer:
        return self._client.complete(model, request, context, limits)

    def recall(self, args: Answer, context: Context) -> Answer:
        return self._recall(args, context)

    @property
    def runner(self) -> Runner:
        return self._shell.runner

    def run(self, args: Answer, context: Context) -> Answer:
        return self._shell.perform(args, context)

    @property
    def turns(self) -> Turns:
        return self._turns


class _Task:
    """One task. notes: notes of its result. used: its usage, as a part of the effect's result."""

    def __init__(self, tasks: Tasks, args: Answer, context: Context) -> None:
        self.tasks = tasks
        self.args = args
        self.context = context
        definition = args.get("definition")
        self.definition: Answer = definition if isinstance(definition, dict) else {}
        self.inputs: Answer = args.get("inputs") or {}
        self.context_settings = {
            **self.definition.get("context_management", {}),
            **(args.get("context") or {}),
        }
        self.history = {**self.definition.get("history_config", {}), **(args.get("history_config") or {})}
        self.criteria = ""
        self.notes: Answer = {}
        self.usage: Answer | None = None
        self.timed_out: str | None = None
        self.waited_s = 0.0
        self.deadline: float | None = None

    @property
    def used(self) -> Answer:
        return {} if self.usage is None else {"usage": self.usage}

    def perform(self) -> Answer:
        if not self.definition.get("instructions"):
            raise Failed("subtask_failure", f"the task `{self.args['name']}` has no instructions")
        settings = self.tasks.settings.tasks
        timeout = self.args.get("timeout_s") or settings.timeout
        self.deadline = clock.monotonic() + timeout
        try:
            instructions = fill(self.definition["instructions"], self.inputs)
            system = fill(self.definition.get("system", ""), self.inputs)
            self.criteria = fill(self.definition.get("criteria", ""), self.inputs)
            if not instructions.strip():
                raise BadInput("the instructions are empty, because all their inputs are empty")
            paths = prompt_files.resolved(self.paths())
        except (BadInput, BadPath) as error:
            raise Failed("input_validation_failure", str(error)) from None
        runner = self.definition.get("runner") or settings.runner
        perform = self.by_agent if runner == "agent" else self.by_model
        answer = perform(instructions, system, paths)
        is_recorded = self.history.get("record_in_session_history") is not False
        turn = {
            "prompt": bounded(instructions),
            "files": paths[: prompt_files.MAX_FILES],
            "is_recorded": is_recorded,
        }
        return {**answer, "turn": turn, **self.used}

    @property
    def criteria_text(self) -> str:
        return f"The result is judged by this: {self.criteria}" if self.criteria else ""

    def limits(self) -> Answer:
        """The time limits of the next call."""
        remaining = None if self.deadline is None else max(0.0, self.deadline - clock.monotonic())
        return {"timeout_s": remaining, "deadline_ms": self.args.get("deadline_ms")}

    # --- files --------------------------------------------------------------------------------

    def paths(self) -> list[str]:
        """The paths of the files for the task; the files of the call come first."""
        paths: list[str] = list(self.args.get("files") or ())
        declared = self.definition.get("file_paths") or {}
        match declared.get("source"):
            case "literal":
                paths += [fill(path, self.inputs) for path in declared.get("paths", ())]
            case "command":
                paths += self.paths_from_command(declared)
            case "description" | "context_description":
                paths += self.paths_from_memory(fill(declared["text"], self.inputs))
        inherits = self.context_settings.get("inherit_context", "none")
        if inherits == "full":
            paths += self.tasks.turns.files
        is_fresh = self.context_settings.get("fresh_context") == "enabled"
        if is_fresh or (inherits == "subset" and self.tasks.turns.files):
            query = self.definition.get("description") or fill(self.definition["instructions"], self.inputs)
            remembered = self.paths_from_memory(query)
            if inherits == "subset":
                paths += [path for path in self.tasks.turns.files if path in remembered]
            paths += remembered if is_fresh else []
        return paths

    def paths_from_command(self, declared: Answer) -> list[str]:
        """The paths that a command prints, one per line."""
        command = declared["text"] if "shell" not in declared else self.command(declared["shell"])
        result = self.tasks.run({"command": command, **self.limits()}, self.quiet_context())
        if "timed_out" in result:
            self.timed_out = result["timed_out"]
            raise Failed("execution_timeout", "the command that names the task's files took too long")
        if result["exit_code"]:
            output = (result["stderr"].strip() or result["output"].strip())[-500:]
            message = f"the command that names the task's files ended with {result['exit_code']}: {output}"
            raise Failed("context_retrieval_failure", message, exit_code=result["exit_code"])
        return [line for line in result["output"].splitlines() if line.strip()]

    def command(self, pieces: list[Any]) -> str:
        names = [piece["of"] for piece in pieces if isinstance(piece, dict)]
        values = {name: field_of(self.inputs, name) for name in names}
        return "".join(in_shell(piece, values) for piece in pieces)

    def paths_from_memory(self, query: str) -> list[str]:
        """The paths that memory finds for the task, best first."""
        request = {
            "query": query,
            "inputs": self.inputs,
            "context_relevance": self.definition.get("context_relevance"),
            "template_description": self.definition.get("description"),
            "template_subtype": self.definition.get("subtype"),
            "limit": MAX_REMEMBERED_FILES,
            **self.limits(),
        }
        result = self.tasks.recall({key: value for key, value in request.items() if value}, self.context)
        self.usage = add_usage(self.usage, result.get("usage"))
        if "error" in result:
            self.timed_out = result.get("timed_out")
            reason = "execution_timeout" if self.timed_out else "context_retrieval_failure"
            raise Failed(reason, f"no files could be found: {result['error']['message']}")
        return [match["path"] for match in result["matches"]]

    def quiet_context(self) -> Context:
        """The context of the effect for a command whose output is not shown."""
        fields = {name: getattr(self.context, name) for name in Context.field_names if name != "on_output"}
        return Context(**fields)

    def read_files(self, paths: list[str]) -> list[PromptFile]:
        settings = self.tasks.settings.tasks
        files = prompt_files.read(paths, settings.file_bytes, settings.files_bytes)
        self.note_files(files)
        return files

    def note_files(self, files: list[PromptFile]) -> None:
        if files:
            self.notes["files"] = [
                {"path": file.path, **({"problem": file.problem} if file.problem else {})} for file in files
            ]

    # --- by a model ---------------------------------------------------------------------------

    @property
    def is_json(self) -> bool:
        return self.output.get("type") == "json"

    @property
    def output(self) -> Answer:
        output: Answer = self.definition.get("output_format") or {}
        return output

    def by_model(self, instructions: str, system: str, paths: list[str]) -> Answer:
        model = models.of_task(self.definition, self.tasks.settings)
        self.notes["model"] = model.name
        schema = self.output.get("schema") if self.is_json else None
        messages = [
            entry
            for prompt, reply_text in self.conversation()
            for entry in (message("user", (prompt, False)), message("assistant", (reply_text, False)))
        ]
        outputs = ""
        if self.context_settings.get("accumulate_data"):
            is_full = self.context_settings.get("accumulation_format") != "notes_only"
            outputs = self.tasks.turns.outputs(is_full)
        messages.append(
            message(
                "user",
                (prompt_files.rendered(self.read_files(paths)), True),
                (outputs, False),
                (instructions, False),
                (self.criteria_text, False),
                (JSON_ONLY if self.is_json and schema is None else "", False),
            )
        )
        limit = f"`max_tokens` of `tasks` ({self.tasks.settings.tasks.max_tokens})"
        request = {
            "system": system,
            "messages": messages,
            "max_tokens": self.tasks.settings.tasks.max_tokens,
            "output": json_output(schema, limit) if self.is_json else None,
        }
        reply = self.call(model, request)
        if not self.is_json:
            return _text_result(reply, self.notes)
        problem = reply.get("problem")
        if problem and self.output.get("repair"):
            self.notes["repaired"] = problem
            repair = [
                message("assistant", (content_of(reply) or "(nothing)", False)),
                message("user", (_REPAIR.format(problem=problem), False)),
            ]
            reply = self.call(model, {**request, "messages": [*messages, *repair]})
        return self.json_result(content_of(reply), reply)

    def conversation(self) -> list[tuple[str, str]]:
        max_turns = self.history.get("history_turns_to_include")
        # A number of turns also enables the history.
        if not self.history.get("use_session_history", max_turns is not None):
            return []
        return self.tasks.turns.conversation(max_turns)

    def call(self, model: models.Model, request: Answer) -> Answer:
        """Call the model once. Raises `Failed` if there is no reply."""
        reply = self.tasks.complete(model, request, self.context, self.limits())
        self.waited_s += reply.get("waited_s", 0)
        self.usage = add_usage(self.usage, reply.get("usage"))
        if self.usage is not None:
            self.notes["usage"] = self.usage
        error = reply.get("error")
        if error is not None:
            self.timed_out = reply.get("timed_out")
            reason = "execution_timeout" if error["kind"] == "timeout" else "subtask_failure"
            raise Failed(reason, error["message"], kind=error["kind"], model=model.name)
        if reply["stop"] == "refusal":
            raise Failed("subtask_failure", "the model refused to do it", kind="refusal", model=model.name)
        return reply

    def json_result(self, content: str, parsed: Answer) -> Answer:
        """The result of a JSON task. parsed: `value` or `problem`. Raises `Failed` for a problem."""
        if "problem" in parsed:
            raise Failed("output_format_failure", parsed["problem"], content=bounded(content))
        result = unstructure(TaskResult("COMPLETE", content, notes=self.notes))
        # Added afterwards, because `unstructure` omits null, which is a valid value.
        return {"result": {**result, "parsedContent": parsed["value"]}}

    # --- by an agent --------------------------------------------------------------------------

    def by_agent(self, instructions: str, system: str, paths: list[str]) -> Answer:
        """Perform the task with the agent program, which reads the files itself."""
        schema = self.output.get("schema") if self.is_json else None
        file_list = "".join(f"- {path}\n" for path in paths)
        parts = [
            system,
            f"Look at these files:\n{file_list}" if file_list else "",
            self.tasks.turns.outputs(self.context_settings.get("accumulation_format") != "notes_only")
            if self.context_settings.get("accumulate_data")
            else "",
            instructions,
            self.criteria_text,
            JSON_ONLY if self.is_json else "",
            f"It must fit this JSON Schema: {_as_json(schema)}" if schema is not None else "",
        ]
        self.note_files([PromptFile(path, "") for path in paths])
        self.notes["runner"] = "agent"
        result = self.run_agent("\n\n".join(part.strip() for part in parts if part.strip()))
        reply = _reply_of_agent(result, self.notes)
        if not self.is_json:
            return _text_result(reply, self.notes)
        parsed = structured_output.read(reply, schema, "the end of its context")
        session = result.get("session")
        if "problem" in parsed and self.output.get("repair") and session and self.can_resume():
            self.notes["repaired"] = parsed["problem"]
            reply = _reply_of_agent(self.run_agent(_REPAIR.format(**parsed), session), self.notes)
            parsed = structured_output.read(reply, schema, "the end of its context")
        return self.json_result(reply["text"], parsed)

    def agent(self) -> dict[str, Any]:
        """The agent of the project's tasks, as arguments of an `agent` effect."""
        program = self.tasks.settings.tasks.agent
        return {"agent": program} if isinstance(program, str) else {"argv": list(program) or None}

    def can_resume(self) -> bool:
        return agent.can_resume(self.agent(), self.tasks.runner.env)

    def run_agent(self, prompt: str, session: str | None = None) -> Answer:
        """Run the agent program. Raises `Failed` if it does not end successfully."""
        args = {"command": prompt, "session": session, **self.agent(), **self.limits()}
        result = agent.run_agent(args, self.context, self.tasks.runner)
        if "session" in result:
            self.notes["session"] = result["session"]
        self.usage = add_usage(self.usage, result.get("usage"))
        if self.context.cap_usd is not None:  # a repair gets the rest of the budget
            used = amount((result.get("usage") or {}).get("usd"))
            self.context.cap_usd = max(0.0, self.context.cap_usd - used)
        if self.usage is not None and any(count is not None for count in self.usage.values()):
            self.notes["usage"] = self.usage
        if "timed_out" in result:
            self.timed_out = result["timed_out"]
            raise Failed("execution_timeout", "the agent took too long")
        if "error" in result and result["error"]["kind"] != "failed-exit":
            raise Failed("subtask_failure", result["error"]["message"], kind=result["error"]["kind"])
        if result["exit_code"]:
            output = (result["stderr"].strip() or result["output"].strip())[-500:]
            message = f"the agent ended with exit code {result['exit_code']}"
            message += f": {output}" if output else ""
            raise Failed("subtask_failure", message, exit_code=result["exit_code"])
        return result


def _reply_of_agent(result: Answer, notes: Answer) -> Answer:
    """The result of an agent as a reply; adds its hand-off to the notes."""
    if "handoff" in result:
        # The agent's context is full; a later call can continue the task from the hand-off.
        notes["handoff"] = result["handoff"]
    return {"text": result["output"], "stop": "length" if "handoff" in result else "end"}


def content_of(reply: Answer) -> str:
    """The content of a reply: its text, or its data as JSON."""
    return _as_json(reply["data"]) if "data" in reply else reply["text"]


def _as_json(data: Any) -> str:
    import json

    return json.dumps(data, ensure_ascii=False)


def _text_result(reply: Answer, notes: Answer) -> Answer:
    # A truncated text can be continued.
    status: Any = "CONTINUATION" if reply["stop"] == "length" else "COMPLETE"
    return {"result": unstructure(TaskResult(status, reply["text"].strip(), notes=notes))}


def failed(reason: str, message: str, details: Answer, notes: Answer | None = None) -> Answer:
    """A FAILED TaskResult as plain data."""
    error = unstructure(TaskError("TASK_FAILURE", reason, message, details))
    return unstructure(TaskResult("FAILED", message, notes={**(notes or {}), "error": error}))
