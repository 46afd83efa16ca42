"""The `task` effect in the real world: an atomic task, done by a model or by an agent program.

Owns the order: settings, inputs, files, prompt, call, output; and that whatever comes of it is a
TaskResult. What is sent and how is the business of `models`. See `spec/tasks.md`.
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

# Paths that memory may find for a task.
FOUND = 10
_REPAIR = "That cannot be used: {problem}. Give the whole result again, with nothing wrong in it."


class Failed(Exception):
    """A task that fails: a reason, a message, more facts."""

    def __init__(self, reason: str, message: str, **details: Any) -> None:
        self.reason = reason
        self.message = message
        self.details = details
        super().__init__(reason, message)


def perform(args: Answer, context: Context, parts: Parts) -> Answer:
    """Perform a `task` effect."""
    return tasks_of(parts).perform(args, context)


def tasks_of(parts: Parts) -> Tasks:
    def recall(asked: Answer, asking: Context) -> Answer:
        return parts.perform_kind("context", asked, asking)

    return parts.keep_for_run("tasks", lambda: Tasks(shell_of(parts), turns_of(parts), recall, parts.workers))


class Tasks:
    """Performs `task` effects for one run. recall: performs `context`, for the files that memory finds.

    shared: as `ModelClient` has it.
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
        """What the project says of models and tasks, as it was when the first task was done."""
        if self._settings is None:
            try:
                self._settings = configuration.load_usable(ROOT)
            except configuration.Unusable as error:
                raise Failed("subtask_failure", str(error)) from None
        return self._settings

    def perform(self, args: dict[str, Any], context: Context) -> Answer:
        """{result}, with `usage` where a model was asked: in every outcome a TaskResult."""
        started = clock.monotonic()
        task = _Task(self, args, context)
        try:
            answer = task.do()
        except Failed as why:
            result = failed(why.reason, why.message, {"task": args["name"], **why.details}, task.notes)
            answer = {"result": result, **task.used}
        if task.criteria:
            answer["result"]["criteria"] = task.criteria
        answer["duration_ms"] = round((clock.monotonic() - started - task.waited_s) * 1000)
        answer["elapsed_ms"] = context.elapsed_ms()
        if task.timed_out is not None:
            answer["timed_out"] = task.timed_out
        self._turns.observe(args, answer)
        return answer

    # What a task needs of the run.

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
    """One task that is done. notes: of its result. used: its usage, as a part of the effect's result."""

    def __init__(self, tasks: Tasks, args: Answer, context: Context) -> None:
        self.tasks = tasks
        self.args = args
        self.context = context
        definition = args.get("definition")
        self.definition: Answer = definition if isinstance(definition, dict) else {}
        self.inputs: Answer = args.get("inputs") or {}
        self.setting = {**self.definition.get("context_management", {}), **(args.get("context") or {})}
        self.history = {**self.definition.get("history_config", {}), **(args.get("history_config") or {})}
        self.criteria = ""
        self.notes: Answer = {}
        self.usage: Answer | None = None
        self.timed_out: str | None = None
        self.waited_s = 0.0
        self.end: float | None = None

    @property
    def used(self) -> Answer:
        return {} if self.usage is None else {"usage": self.usage}

    def do(self) -> Answer:
        if not self.definition.get("instructions"):
            raise Failed("subtask_failure", f"nothing here says how `{self.args['name']}` is done")
        settings = self.tasks.settings.tasks
        timeout = self.args.get("timeout_s") or settings.timeout
        self.end = clock.monotonic() + timeout
        try:
            instructions = fill(self.definition["instructions"], self.inputs)
            system = fill(self.definition.get("system", ""), self.inputs)
            self.criteria = fill(self.definition.get("criteria", ""), self.inputs)
            if not instructions.strip():
                raise BadInput("the instructions are empty: every input in them is")
            paths = prompt_files.resolved(self.paths())
        except (BadInput, BadPath) as error:
            raise Failed("input_validation_failure", str(error)) from None
        runner = self.definition.get("runner") or settings.runner
        do = self.by_agent if runner == "agent" else self.by_model
        answer = do(instructions, system, paths)
        is_recorded = self.history.get("record_in_session_history") is not False
        turn = {
            "prompt": bounded(instructions),
            "files": paths[: prompt_files.MAX_FILES],
            "is_recorded": is_recorded,
        }
        return {**answer, "turn": turn, **self.used}

    @property
    def judged(self) -> str:
        return f"The result is judged by this: {self.criteria}" if self.criteria else ""

    def limits(self) -> Answer:
        """The time that is left for a call."""
        left = None if self.end is None else max(0.0, self.end - clock.monotonic())
        return {"timeout_s": left, "deadline_ms": self.args.get("deadline_ms")}

    # --- files --------------------------------------------------------------------------------

    def paths(self) -> list[str]:
        """The files that the task sees, those that the call names first."""
        found: list[str] = list(self.args.get("files") or ())
        declared = self.definition.get("file_paths") or {}
        match declared.get("source"):
            case "literal":
                found += [fill(path, self.inputs) for path in declared.get("paths", ())]
            case "command":
                found += self.printed(declared)
            case "description" | "context_description":
                found += self.remembered(fill(declared["text"], self.inputs))
        inherits = self.setting.get("inherit_context", "none")
        if inherits == "full":
            found += self.tasks.turns.files
        is_fresh = self.setting.get("fresh_context") == "enabled"
        if is_fresh or (inherits == "subset" and self.tasks.turns.files):
            query = self.definition.get("description") or fill(self.definition["instructions"], self.inputs)
            remembered = self.remembered(query)
            if inherits == "subset":
                before = self.tasks.turns.files
                found += [path for path in before if path in remembered]
            found += remembered if is_fresh else []
        return found

    def printed(self, declared: Answer) -> list[str]:
        """The paths that a command prints, one in a line."""
        command = declared["text"] if "shell" not in declared else self.command(declared["shell"])
        quiet = self.quiet()
        result = self.tasks.run({"command": command, **self.limits()}, quiet)
        if "timed_out" in result:
            self.timed_out = result["timed_out"]
            raise Failed("execution_timeout", "the command that names the task's files took too long")
        if result["exit_code"]:
            said = (result["stderr"].strip() or result["output"].strip())[-500:]
            what = f"the command that names the task's files ended with {result['exit_code']}: {said}"
            raise Failed("context_retrieval_failure", what, exit_code=result["exit_code"])
        return [line for line in result["output"].splitlines() if line.strip()]

    def command(self, pieces: list[Any]) -> str:
        names = [piece["of"] for piece in pieces if isinstance(piece, dict)]
        values = {name: field_of(self.inputs, name) for name in names}
        return "".join(in_shell(piece, values) for piece in pieces)

    def remembered(self, query: str) -> list[str]:
        """The paths that memory finds for the task, best first."""
        asked = {
            "query": query,
            "inputs": self.inputs,
            "context_relevance": self.definition.get("context_relevance"),
            "template_description": self.definition.get("description"),
            "template_subtype": self.definition.get("subtype"),
            "limit": FOUND,
            **self.limits(),
        }
        result = self.tasks.recall({key: value for key, value in asked.items() if value}, self.context)
        self.usage = add_usage(self.usage, result.get("usage"))
        if "error" in result:
            self.timed_out = result.get("timed_out")
            reason = "execution_timeout" if self.timed_out else "context_retrieval_failure"
            raise Failed(reason, f"no files could be found: {result['error']['message']}")
        return [match["path"] for match in result["matches"]]

    def quiet(self) -> Context:
        """The context of the effect, for a command whose output is not shown."""
        now = self.context
        fields = {name: getattr(now, name) for name in Context.field_names if name != "on_output"}
        return Context(**fields)

    def shown(self, paths: list[str]) -> list[PromptFile]:
        settings = self.tasks.settings.tasks
        found = prompt_files.read(paths, settings.file_bytes, settings.files_bytes)
        self.note_files(found)
        return found

    def note_files(self, found: list[PromptFile]) -> None:
        if found:
            self.notes["files"] = [
                {"path": file.path, **({"problem": file.problem} if file.problem else {})} for file in found
            ]

    # --- by a model ---------------------------------------------------------------------------

    @property
    def is_json(self) -> bool:
        return self.output.get("type") == "json"

    @property
    def output(self) -> Answer:
        found: Answer = self.definition.get("output_format") or {}
        return found

    def by_model(self, instructions: str, system: str, paths: list[str]) -> Answer:
        model = models.of_task(self.definition, self.tasks.settings)
        self.notes["model"] = model.name
        schema = self.output.get("schema") if self.is_json else None
        messages = [
            sent
            for asked, answered in self.conversation()
            for sent in (message("user", (asked, False)), message("assistant", (answered, False)))
        ]
        outputs = ""
        if self.setting.get("accumulate_data"):
            is_full = self.setting.get("accumulation_format") != "notes_only"
            outputs = self.tasks.turns.outputs(is_full)
        messages.append(
            message(
                "user",
                (prompt_files.rendered(self.shown(paths)), True),
                (outputs, False),
                (instructions, False),
                (self.judged, False),
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
        reply = self.ask(model, request)
        if not self.is_json:
            return _text_result(reply, self.notes)
        problem = reply.get("problem")
        if problem and self.output.get("repair"):
            self.notes["repaired"] = problem
            said = said_of(reply) or "(nothing)"
            again = [
                message("assistant", (said, False)),
                message("user", (_REPAIR.format(problem=problem), False)),
            ]
            reply = self.ask(model, {**request, "messages": [*messages, *again]})
        return self.json_result(said_of(reply), reply)

    def conversation(self) -> list[tuple[str, str]]:
        most = self.history.get("history_turns_to_include")
        # Who says how many turns wants them.
        if not self.history.get("use_session_history", most is not None):
            return []
        return self.tasks.turns.conversation(most)

    def ask(self, model: models.Model, request: Answer) -> Answer:
        """One call; `Failed` where no reply came of it."""
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

    def json_result(self, content: str, found: Answer) -> Answer:
        """found: a reply's `value`, or its `problem`."""
        if "problem" in found:
            raise Failed("output_format_failure", found["problem"], content=bounded(content))
        made = unstructure(TaskResult("COMPLETE", content, notes=self.notes))
        # Null is a value that JSON may have.
        return {"result": {**made, "parsedContent": found["value"]}}

    # --- by an agent --------------------------------------------------------------------------

    def by_agent(self, instructions: str, system: str, paths: list[str]) -> Answer:
        """The agent program is given the prompt; it reads the files itself."""
        schema = self.output.get("schema") if self.is_json else None
        listed = "".join(f"- {path}\n" for path in paths)
        parts = [
            system,
            f"Look at these files:\n{listed}" if listed else "",
            self.tasks.turns.outputs(self.setting.get("accumulation_format") != "notes_only")
            if self.setting.get("accumulate_data")
            else "",
            instructions,
            self.judged,
            JSON_ONLY if self.is_json else "",
            f"It must fit this JSON Schema: {_as_json(schema)}" if schema is not None else "",
        ]
        self.note_files([PromptFile(path, "") for path in paths])
        self.notes["runner"] = "agent"
        result = self.run_agent("\n\n".join(part.strip() for part in parts if part.strip()))
        reply = _said_by_agent(result, self.notes)
        if not self.is_json:
            return _text_result(reply, self.notes)
        found = structured_output.read(reply, schema, "the end of its context")
        session = result.get("session")
        if "problem" in found and self.output.get("repair") and session and self.can_resume():
            self.notes["repaired"] = found["problem"]
            reply = _said_by_agent(self.run_agent(_REPAIR.format(**found), session), self.notes)
            found = structured_output.read(reply, schema, "the end of its context")
        return self.json_result(reply["text"], found)

    def agent(self) -> dict[str, Any]:
        """The agent of the project's tasks, as an effect names it."""
        program = self.tasks.settings.tasks.agent
        return {"agent": program} if isinstance(program, str) else {"argv": list(program) or None}

    def can_resume(self) -> bool:
        return agent.can_resume(self.agent(), self.tasks.runner.env)

    def run_agent(self, prompt: str, session: str | None = None) -> Answer:
        """What the agent program reports; `Failed` where it did not come to its end."""
        asked = {"command": prompt, "session": session, **self.agent(), **self.limits()}
        result = agent.run_agent(asked, self.context, self.tasks.runner)
        if "session" in result:
            self.notes["session"] = result["session"]
        self.usage = add_usage(self.usage, result.get("usage"))
        if self.context.cap_usd is not None:  # what it has used is not there for a repair
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
            said = (result["stderr"].strip() or result["output"].strip())[-500:]
            message = f"the agent ended with exit code {result['exit_code']}" + (f": {said}" if said else "")
            raise Failed("subtask_failure", message, exit_code=result["exit_code"])
        return result


def _said_by_agent(result: Answer, notes: Answer) -> Answer:
    """What an agent reports, as a reply; its hand-off is noted."""
    if "handoff" in result:
        # Its context is full; a later call can continue the task from its hand-off.
        notes["handoff"] = result["handoff"]
    return {"text": result["output"], "stop": "length" if "handoff" in result else "end"}


def said_of(reply: Answer) -> str:
    """What a model said: its words, or the data it gave as JSON."""
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
