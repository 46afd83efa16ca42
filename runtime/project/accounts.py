"""Accounts that are charged for calls of agents and models.

The name of an account is its provider or agent, followed by a fingerprint of the API key or login if it is
known: `anthropic:1f3a9c02`. Keys themselves are never stored or shown.
"""

from __future__ import annotations

import json
import os.path
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple

from ..host import environment
from ..host.paths import open_regular
from . import agents, models
from .providers import PROVIDERS
from .settings import Configuration

_MAX_LOGIN_FILE_BYTES = 16 << 20


class Payer(NamedTuple):
    """The account of a call. agent: "" for a model call. model: "" if it is not known."""

    account: str
    agent: str
    model: str


def of_effect(kind: str, args: Mapping[str, Any], settings: Configuration) -> Payer | None:
    """The payer of an effect; None if the effect calls neither an agent nor a model."""
    model = models.of_effect(kind, args, settings)
    if model is not None:
        return Payer(of_model(model), "", model.name)
    if kind == "context":
        return None
    command: Any = settings.tasks.agent if kind == "task" else args.get("agent") or args.get("argv")
    if not command:
        command = environment.environ.get("LLC_AGENT", "").split() or agents.DEFAULT
    agent = command if isinstance(command, str) else os.path.basename(str(command[0]))
    return Payer(_of_agent(agent, settings), agent, str(args.get("model") or ""))


def of_model(model: models.Model) -> str:
    """The account of a model that is called through an API."""
    return _account_name(model.provider, _value(model.key or PROVIDERS[model.provider].key))


def _of_agent(agent: str, settings: Configuration) -> str:
    entry = settings.agents.get(agent)
    if entry is None and agent in agents.known_names():
        entry = agents.known(agent)
    if entry is None:
        return agent
    for variable in entry.login.variables if entry.login is not None else ():
        if key := _value(variable):
            provider = next((name for name, row in PROVIDERS.items() if row.key == variable), agent)
            return _account_name(provider, key)
    program = os.path.basename(str(entry.argv[0]))
    if entry.protocol is not None and agent in agents.known_names():
        agent = program = agent.removesuffix("-acp")  # the same account over another protocol
    return _account_name(agent, _claude_login() if program == "claude" else None)


def _claude_login() -> str | None:
    """The id of Claude Code's logged-in account; None if it is not known."""
    folder = _value("CLAUDE_CONFIG_DIR") or os.path.expanduser("~")
    try:
        with open_regular(os.path.join(folder, ".claude.json")) as file:
            account = json.loads(file.read(_MAX_LOGIN_FILE_BYTES)).get("oauthAccount")
        return str(account["accountUuid"])
    except (OSError, ValueError, RecursionError, AttributeError, TypeError, KeyError):
        return None


def _value(variable: str) -> str | None:
    return environment.environ.get(variable)


def _account_name(name: str, secret: str | None) -> str:
    if not secret:
        return name
    return f"{name}:{sha256(b'llc account ' + secret.encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"
