"""Preflight checks: missing agents, logins, keys and commands of a program, found before the run starts.

A failed check refuses the run; a warning is shown. The checks perform no effects and cost nothing.
`llc doctor` shows the same checks for all loops.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterator
from typing import Any

from ...ir.diagnostics import suggest
from ...ir.nodes import Const, Expr, Perform, Prim, Program
from ...ir.records import frozen
from ...vm.code.image import Image
from ...vm.code.lift import lift
from ..effects.agents import judge as agent_judge
from ..effects.agents.agent import Refused, chosen
from ..effects.process import Runner
from ..effects.shell import plain_words
from ..host import environment, files, processes, signals
from ..host.errors import Failure
from ..host.paths import ROOT
from ..ledger.database import LedgerError
from ..project import agents, configuration, models, prices, run_ledgers
from ..project.agent_schema import AgentSpec

OK, WARNING, FAILURE = "ok", "warning", "failure"
# Timeout of a program that is asked for its login or version.
_PROGRAM_TIMEOUT_S = 5
_SLASH = re.compile(r"\s*/([A-Za-z0-9_-]+)(?::([A-Za-z0-9_:-]+))?(?:\s|$)")


@frozen
class Check:
    """Result of one check. help: the fix, if any."""

    subject: str
    status: str
    message: str
    help: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {"subject": self.subject, "status": self.status, "message": self.message, "help": self.help}


def refuse(image: Image, has_budget: bool = False) -> list[Check]:
    """Check a program; return the warnings. Raises UserError for the first failed check.

    has_budget: the run has a budget in USD.
    """
    program = lift(image, places=False)
    checks = list(program_checks(program))
    if has_budget or image.meta["limits"].get("budget_usd") is not None:
        checks += _cost_checks(program)
    for check in checks:
        if check.status == FAILURE:
            override = "to skip the checks: --no-preflight"
            help = f"{check.help}; {override}" if check.help else override
            raise Failure("preflight", f"{check.subject}: {check.message}", help)
    return [check for check in checks if check.status == WARNING]


def program_checks(program: Program) -> Iterator[Check]:
    """The checks of a program, without duplicates."""
    runner = Runner()
    try:
        seen: set[str] = set()
        for check in _all_checks(program, runner):
            key = f"{check.subject} {check.message}"
            if key not in seen:
                seen.add(key)
                yield check
    finally:
        runner.close()


def _cost_checks(program: Program) -> Iterator[Check]:
    """Agents without a known cost: after their first call, the rest of a budget in USD would be unknown."""
    runner = Runner()
    try:
        entries = configuration.load_usable(ROOT).models
        for function in program.functions:
            for state in function.states:
                if not isinstance(state.exit, Perform) or state.exit.kind != "agent":
                    continue
                args = _constants(state.exit.args)
                agent = chosen(args, runner.env)
                if agents.states_cost(agent) or prices.Prices().is_known(args.get("model"), entries):
                    continue
                message = "does not state what it costs, so a budget in USD cannot be enforced"
                help = (
                    "limit `calls` or `tokens` instead (`budget: {calls: 10}`, `--budget usd=none`), or name "
                    "a `model` with a known price or with a `price` under `models` in .loops/config.yaml"
                )
                yield Check(f"agent {agent.name or agent.argv[0]}", FAILURE, message, help)
    except (Refused, configuration.Unusable):
        return  # another check reports the error
    finally:
        runner.close()


def _all_checks(program: Program, runner: Runner) -> Iterator[Check]:
    logins: dict[str, Check | None] = {}  # cached: a login check takes almost half a second
    for function in program.functions:
        for state in function.states:
            if not isinstance(state.exit, Perform):
                continue
            args = _constants(state.exit.args)
            yield from _ledger_checks(state.exit.kind, args)
            match state.exit.kind:
                case "agent":
                    yield from agent_checks(args, runner, logins)
                case "evaluate":
                    yield from _judge_checks(args, runner)
                case "shell":
                    yield from _command_checks(args.get("command"), runner)


def _constants(args: Expr) -> dict[str, Any]:
    """The arguments of an effect that are constant."""
    if isinstance(args, Const):
        return dict(args.value) if isinstance(args.value, dict) else {}
    if not (isinstance(args, Prim) and args.op == "map"):
        return {}
    pairs = zip(args.args[::2], args.args[1::2], strict=True)
    return {
        key.value: value.value for key, value in pairs if isinstance(key, Const) and isinstance(value, Const)
    }


# --- agents ---------------------------------------------------------------------------------------


def agent_checks(
    args: dict[str, Any], runner: Runner, logins: dict[str, Check | None] | None = None
) -> Iterator[Check]:
    """The checks of the agent that an effect uses: its program, its login, its slash command.

    logins: cache of login checks, by subject.
    """
    logins = {} if logins is None else logins
    if not isinstance(args.get("argv", ()), tuple):
        return  # a forged image; the effect is refused when it is performed
    try:
        agent = chosen(args, runner.env)
    except Refused as error:
        yield Check("agent", FAILURE, error.message)
        return
    name = agent.argv[0]
    subject = f"agent {agent.name or name}"
    path = runner.find(name)
    if path is None:
        help = f"install it with `{agent.install}`" if agent.install else "install it, or name another agent"
        yield Check(subject, FAILURE, f"`{name}` is not on PATH", help)
        return
    if subject not in logins:
        logins[subject] = _login_check(agent, subject, runner)
    login = logins[subject]
    yield login if login is not None else Check(subject, OK, path)
    command = args.get("command")
    if isinstance(command, str) and agent.slash_commands is not None:
        yield from _slash_checks(agent, subject, command)


def _login_check(agent: AgentSpec, subject: str, runner: Runner) -> Check | None:
    """A check that reports a missing login; None if the agent is logged in or its login is unknown."""
    login = agent.login
    if login is None or not login.argv or any(environment.environ.get(name) for name in login.variables):
        return None
    program = runner.find(login.argv[0])
    if program is None or login.denied is None:
        return None
    output = output_of([program, *login.argv[1:]])
    if output is None or re.search(login.denied, output, re.MULTILINE) is None:
        return None
    help = next((error.help for error in agent.errors if error.kind == "auth" and error.help), None)
    return Check(subject, FAILURE if login.is_certain else WARNING, "is not logged in", help)


def _slash_checks(agent: AgentSpec, subject: str, command: str) -> Iterator[Check]:
    """Check that a slash command exists in the project or for the user."""
    match = _SLASH.match(command)
    known = agent.slash_commands
    if match is None or known is None:
        return
    name, part = match[1], match[2]
    if part is not None:  # in a plugin or sub-folder, where the agent has further search rules
        return
    names = set(known.built_in)
    for folder in known.folders:
        folder = os.path.expanduser(folder)
        try:
            entries = files.listdir(folder if os.path.isabs(folder) else os.path.join(ROOT, folder))
        except OSError:
            continue
        names |= {entry.removesuffix(".md") for entry in entries}
    if name not in names:
        help = suggest(name, names) or f"write it to {known.folders[0]}/{name}.md"
        yield Check(
            subject, WARNING, f"no command `/{name}` is known", f"{help}, or use `action_type: prompt`"
        )


def output_of(argv: list[str]) -> str | None:
    """Output of a program on both streams; None if it cannot be started or exceeds the timeout."""
    try:
        process = processes.Popen(
            argv,
            stdin=processes.DEVNULL,
            stdout=processes.PIPE,
            stderr=processes.PIPE,
            start_new_session=True,
        )
    except OSError:
        return None
    try:
        output, errors = process.communicate(timeout=_PROGRAM_TIMEOUT_S)
    except processes.TimeoutExpired:
        processes.killpg(process.pid, signals.SIGKILL)  # child processes may hold the pipes open
        process.communicate()
        return None
    return bytes(output + errors).decode("utf-8", "replace")


def _ledger_checks(kind: str, args: dict[str, Any]) -> Iterator[Check]:
    """Exhausted ledgers: a warning, because the run may end without a call."""
    is_known = kind == "agent" or (kind == "evaluate" and isinstance(args.get("model"), str))
    if not is_known or not isinstance(args.get("argv", ()), tuple):
        return
    try:
        for message, help in run_ledgers.exhausted(kind, args, configuration.load_usable(ROOT)):
            yield Check("ledger", WARNING, message, help)
    except configuration.Unusable:
        return  # another check reports the error
    except LedgerError as error:
        yield Check("ledger", WARNING, str(error), error.help)


# --- models and commands ----------------------------------------------------------------------------


def _judge_checks(args: dict[str, Any], runner: Runner) -> Iterator[Check]:
    name = args.get("model")
    if not isinstance(name, str):
        return
    subject = f"judge {name}"
    try:
        model = models.choose(name, configuration.load_usable(ROOT).models)
    except configuration.Unusable as error:
        yield Check(subject, FAILURE, str(error), "llc validate")
        return
    if args.get("judge") == "agent":
        yield from agent_checks(args, runner)
    elif models.has_key(model):
        yield Check(subject, OK, "a key is set")
    elif args.get("judge") is None and agent_judge.can_judge(args, runner):
        yield Check(subject, OK, f"no key is set, so `{chosen(args, runner.env).argv[0]}` judges")
    else:
        variable = models.key_variable(model)
        yield Check(
            subject,
            FAILURE,
            "there is no API key",
            f"set {variable}, let an agent judge (`llm: {{judge: agent}}`), or judge by exit codes: --no-llm",
        )


def _command_checks(command: Any, runner: Runner) -> Iterator[Check]:
    """Check that the program of a plain command exists; only a warning: an earlier state may install it."""
    words = plain_words(command) if isinstance(command, str) else []
    if words and runner.find(words[0]) is None:
        yield Check(f"command {words[0]}", WARNING, "is not on PATH", "install it, or give its path")
