"""Performer of the `agent` effect: gives a prompt or slash command to an agent program (`loops.md` 10).

Owns the selection of the program, its start and its end. `event_stream` reads its output, `outcome` evaluates
its work. See `spec/agents.md`.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import shlex
import sys
from collections.abc import Mapping
from typing import Any

from ....ir.diagnostics import suggest
from ...host import clock, environment, files, leftovers, signals
from ...host.effect_context import Context, Interrupted, Left
from ...host.errors import KindError
from ...host.paths import ROOT
from ...journal.agent_activity import AgentActivity
from ...journal.agent_history import AgentHistory
from ...models.helper_process import command_of
from ...models.judge import judge_of
from ...models.quota import Quota
from ...project import accounts, agents, configuration, prices
from ...project.agent_schema import PROTOCOLS, AgentSpec
from ...project.settings import Configuration
from ..ask import FOLDER
from ..performers import Parts
from ..process import NotStarted, Runner, failure
from ..process_group import ProcessOptions
from ..shell import shell_of
from . import outcome
from .event_stream import EventStream

VARIABLE = "LLC_AGENT"
_ACP_WORKER = f"{__package__}.acp_worker"
_HELP = f"name the agent program in the loop's `agent:` or in {VARIABLE}"
_SIGNALS = {"INT": signals.SIGINT, "TERM": signals.SIGTERM}


class Refused(KindError):
    """An agent cannot be started with the arguments of an effect."""


def perform(args: dict[str, Any], context: Context, parts: Parts) -> dict[str, Any]:
    """Perform an `agent` effect; start the model client at the same time if the program uses it."""
    if "evaluate" in parts.kinds and not parts.has("judge"):
        # The import takes more than a second, which passes while the agent works.
        judge_of(parts).start()
    return run_agent(args, context, shell_of(parts).runner)


def run_agent(args: dict[str, Any], context: Context, runner: Runner) -> dict[str, Any]:
    """Run the agent with the prompt `args["command"]`; return the result of an `agent` effect.

    args: also `agent`, a name in the configuration, or `argv`, a program with its arguments; `session`, the
    session to continue; `thread`, the usage of this session so far. `context.interrupted` names a session to
    continue; if it does not exist, because the agent was killed too early, it is created with the same id.
    While the quota of the account is used up, the agent is not started (`quota`); afterwards it continues.
    """
    quota = Quota(_account(args), args, context)
    previous: dict[str, Any] = {}
    while True:
        if (refused := quota.enter()) is not None:
            return outcome.add_usage_of(previous, _not_started(context, refused))
        try:
            result = outcome.add_usage_of(previous, _run(args, quota.watched(context), runner))
        except BaseException:
            quota.abandon()
            raise
        if not quota.leave(result):
            return result
        previous, context = result, _context_after_quota(quota, context, result)


def _account(args: dict[str, Any]) -> str:
    """The account of an agent's effect, as named in the ledgers."""
    try:
        settings = configuration.load_usable(ROOT)
    except configuration.Unusable:
        settings = Configuration()
    payer = accounts.of_effect("agent", args, settings)
    return payer.account if payer is not None else ""


def _not_started(context: Context, refused: dict[str, Any]) -> dict[str, Any]:
    """The result of an agent that does not wait any longer for its quota."""
    if "timed_out" in refused:
        return failure(context, 124, timed_out=refused["timed_out"])
    error = refused["error"]
    return {**failure(context, 1, kind=error["kind"], message=error["message"]), "error": error}


def _context_after_quota(quota: Quota, context: Context, result: dict[str, Any]) -> Context:
    """The context in which an agent continues after its quota was used up."""
    next_context = copy.copy(context)
    if quota.history.tools:
        quota.history.begin()
        next_context.interrupted = quota.history
    if quota.cap_usd is not None:
        next_context.cap_usd = max(0.0, quota.cap_usd - ((result.get("usage") or {}).get("usd") or 0))
    return next_context


def _run(args: dict[str, Any], context: Context, runner: Runner) -> dict[str, Any]:
    """Run the agent once, without waiting for a quota."""
    kept = context.kept
    try:
        agent = chosen(args, runner.env)
        if kept is not None and not kept.is_taken:
            attempts = [{**args, **kept.facts["about"]}]
        else:
            attempts = _attempts(agent, args, context)
        for attempt in attempts:
            _check(agent, attempt)
    except Refused as error:
        return failure(context, 126, kind=error.kind, message=error.message)
    for attempt in attempts[:-1]:
        result = _start(agent, attempt, context, runner)
        if result.get("error", {}).get("kind") not in ("no-session", "session-exists"):
            return result
    return _start(agent, attempts[-1], context, runner)


def _start(agent: AgentSpec, args: dict[str, Any], context: Context, runner: Runner) -> dict[str, Any]:
    """Start the program and read its output; return the result of the effect."""
    name = agent.argv[0]
    path = runner.find(name)
    if path is None:
        return _not_found(agent, context)
    env = {
        key.decode("utf-8", "replace"): value.decode("utf-8", "replace") for key, value in runner.env.items()
    }
    command = agents.Command(agent, {**args, "cap_usd": context.cap_usd}, environment.geteuid() == 0, env)
    if command.note and context.on_output is not None:
        context.on_output("stderr", command.note)
    stream, streaming_context = _read_events(agent, args, context)
    options = ProcessOptions(
        stdin=args["command"] if agent.prompt.by == "stdin" or agent.protocol is not None else None,
        env={key.encode(): value.encode() for key, value in command.env.items()},
        stop_signals=tuple(_SIGNALS[name] for name in agent.stop.signals),
        grace=agent.stop.grace,
        idle_s=args.get("idle_timeout_s"),
        must_stop=None if stream is None else lambda: stream.must_stop,
        about={name: args[name] for name in ("session", "new_session") if args.get(name)},
    )
    if (session := args.get("new_session") or args.get("session")) and context.on_agent is not None:
        context.on_agent(AgentActivity("session", id=session))
    words = command.argv
    if agent.protocol is not None:
        settings = {
            "argv": [path, *words[1:]],
            "session": args.get("session"),
            "permissions": command.permissions,
            "mode": command.session_mode,
            "answers": _answers_of(context),
        }
        path, words = sys.executable, command_of(_ACP_WORKER, json.dumps(settings))
    try:
        result = runner.run(path, words, args, streaming_context, options)
    except NotStarted as error:
        return error.result(context)
    except Left:
        raise
    except Interrupted:
        leftovers.end_effect(context.effect_id, ())
        raise
    ended = result.pop("ended", "")
    if ended or "timed_out" in result or (agent.protocol is not None and result["exit_code"]):
        # Shell commands of an agent run in their own sessions; with a protocol, the agent does too.
        leftovers.end_effect(context.effect_id, ())
    if stream is not None:
        stream.finish()
    outcome.read(result, agent, stream, ended, args.get("idle_timeout_s"))
    _add_price(result, args)
    if args.get("session"):
        result.setdefault("session", args["session"])
    return result


def _not_found(agent: AgentSpec, context: Context) -> dict[str, Any]:
    """The result of an agent whose program does not exist."""
    name = agent.argv[0]
    if "/" in name and files.exists(name):
        message = f"`{name}` is not an executable file; {_HELP}"
        return failure(context, 126, kind="not-executable", message=message)
    problem = "does not exist" if "/" in name else "is not on PATH"
    install = f"install it with `{agent.install}`, or " if agent.install and "/" not in name else ""
    return failure(context, 127, kind="not-found", message=f"`{name}` {problem}; {install}{_HELP}")


def _add_price(result: dict[str, Any], args: Mapping[str, Any]) -> None:
    """Add the cost of an agent that states only tokens, if the loop names a model with a price."""
    usage = result.get("usage")
    if not usage or usage.get("usd") is not None or not args.get("model"):
        return
    with contextlib.suppress(configuration.Unusable):
        entries = configuration.load_usable(ROOT).models
        usage["usd"] = prices.Prices().of_agent(args["model"], usage, entries)


def _answers_of(context: Context) -> str | None:
    """Prefix of the path at which `llc answer` stores an answer to the agent; None without a person."""
    if context.folder is None or not context.has_input:
        return None
    return files.realpath(f"{context.folder}/{FOLDER}/{context.effect_id.rpartition('/')[2]}-")


def _attempts(agent: AgentSpec, args: dict[str, Any], context: Context) -> list[dict[str, Any]]:
    """Arguments for each attempt to start the agent; the next is used if its session is missing or exists."""
    fresh = _with_session(agent, args, context)
    interrupted = context.interrupted
    if interrupted is None or not interrupted.session or "session" not in agents.capabilities_of(agent):
        return [fresh]
    session = interrupted.session
    attempts = [{**args, "session": session, "command": _notice(args["command"], interrupted)}]
    if session != args.get("session"):
        attempts[0].pop("fork", None)  # the interrupted attempt has already created the copy
    if "new_session" in fresh:
        attempts.append({**args, "new_session": session})
    return [*attempts, fresh]


def _notice(task: str, interrupted: AgentHistory) -> str:
    """The prompt for an agent whose session continues after an interruption."""
    notice = (
        "The program that ran you was interrupted before you had finished. What you did up to then is in "
        "this session, and the files are as they were left."
    )
    if interrupted.running:
        tools = "\n".join(f"| {' '.join(tool.split())}" for tool in interrupted.running.values())
        notice += f"\n\nThis was running, and has been ended, so that it may be done in part:\n{tools}"
    notice += "\n\nFind out what is done already, do not repeat it, and continue the task."
    if not interrupted.has_worked:
        notice += f" If you have not received the task, it is:\n\n{task}"
    return notice


def _with_session(agent: AgentSpec, args: dict[str, Any], context: Context) -> dict[str, Any]:
    """The arguments with an id for a new session, if the agent accepts one."""
    if args.get("session") or agent.output != "events" or "session_id" not in agents.capabilities_of(agent):
        return args
    # A repeated effect gets a new session, because agents refuse an id that is in use.
    seed = f"{context.effect_id} {clock.time()!r}".encode()
    digest = hashlib.sha256(seed).hexdigest()
    # UUID version 8 of RFC 9562, whose other bits are free.
    variant = "89ab"[int(digest[16], 16) % 4]
    id = f"{digest[:8]}-{digest[8:12]}-8{digest[13:16]}-{variant}{digest[17:20]}-{digest[20:32]}"
    return {**args, "new_session": id}


def _check(agent: AgentSpec, args: Mapping[str, Any]) -> None:
    """Raise `Refused` for an effect that the agent does not support."""
    capabilities = agents.capabilities_of(agent)
    missing = [name for name in agents.required_of(args) if name not in capabilities]
    if missing:
        names = " and ".join(f"`{name}`" for name in missing)
        message = (
            f"`{agent.argv[0]}` has no option for {names}; write it into its arguments under `agents`, or "
            f" use {agents.agents_with(missing) or 'another agent'}"
        )
        raise Refused("unknown-option", message)
    size, limit = len(args["command"].encode("utf-8", "replace")), agent.prompt.max_bytes
    if limit is not None and size > limit:
        message = (
            f"the prompt has {size} bytes, and {agent.argv[0]} accepts {limit}; use `:tail=N` or `:bytes=N`"
        )
        raise Refused("too-large", message)


# --- selection of the program -----------------------------------------------------------------


def chosen(args: Mapping[str, Any], env: Mapping[bytes, bytes]) -> AgentSpec:
    """The agent of an effect: by name, by its command line, by the environment, or the default agent."""
    if args.get("agent"):
        return _named(str(args["agent"]))
    if args.get("argv"):
        words = tuple(args["argv"])
        if args.get("protocol"):
            return _of_protocol(str(args["protocol"]), words)
    else:
        text = env.get(VARIABLE.encode(), b"").decode("utf-8", "surrogateescape")
        try:
            words = tuple(shlex.split(text))
        except ValueError as error:
            raise Refused("failed-to-start", f"{VARIABLE} cannot be read: {error}") from None
        if not words:
            words = (agents.DEFAULT,)
    if len(words) == 1:
        entry = _entries().get(words[0])
        if entry is not None:
            return entry
        if words[0] in agents.known_names():
            return agents.known(words[0])
    return agents.of_words(words)


def _of_protocol(protocol: str, words: tuple[str, ...]) -> AgentSpec:
    """The agent for a command line and the protocol of its program."""
    if protocol not in PROTOCOLS:
        help = suggest(protocol, PROTOCOLS, "there is")
        raise Refused("bad-configuration", f"no protocol is called `{protocol[:80]}`; {help}")
    return agents.of_protocol(protocol, words)


def can_continue(args: Mapping[str, Any]) -> bool:
    """Whether an interrupted effect can be continued in the agent's session."""
    try:
        return can_resume(args, environment.environb)
    except Refused:
        return False


def can_resume(args: Mapping[str, Any], env: Mapping[bytes, bytes]) -> bool:
    """Whether the agent of an effect can continue a session."""
    return "session" in agents.capabilities_of(chosen(args, env))


def _entries() -> Mapping[str, AgentSpec]:
    """The agents in the project's configuration."""
    try:
        return configuration.load_usable(ROOT).agents
    except configuration.Unusable as error:
        raise Refused("bad-configuration", str(error)) from None


def _named(name: str) -> AgentSpec:
    entries = _entries()
    entry = entries.get(name)
    if entry is not None:
        return entry
    if name in agents.known_names():
        return agents.known(name)
    help = suggest(name, [*agents.known_names(), *entries], "there are") or "there are none"
    message = f"no agent is called `{name}` under `agents` in .loops/config.yaml; {help}"
    raise Refused("unknown-agent", message)


# --- output -----------------------------------------------------------------------------------


def _read_events(
    agent: AgentSpec, args: Mapping[str, Any], context: Context
) -> tuple[EventStream | None, Context]:
    """The event stream of an agent, and a context that feeds the output to it; None without events."""
    if agent.output in ("text", "json"):
        return None, context
    # An agent without its own rules may print the events of the default agent.
    rules = agent if agent.events else agents.known(agents.DEFAULT)
    show = context.on_output
    stream = EventStream(
        rules,
        None if show is None else lambda text: show("output", text),
        context.on_agent,
        args.get("thread"),
    )
    streaming_context = copy.copy(context)

    def take(name: str, text: str) -> None:
        if name == "output":
            stream.feed(text)
        elif show is not None:
            show(name, text)

    streaming_context.on_output = take
    return stream, streaming_context
