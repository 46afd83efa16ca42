"""Model choice: the provider, address, key and price of the model that a name means.

A model's name implies its provider (`claude-…`, `gpt-…`), or states it as `provider/name`; a project can
name models of its own with a provider, an address and a key (`models:` in `.loops/config.yaml`).
Other names belong to the default provider.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any, NamedTuple

from ...ir.compile_options import DEFAULT_LLM_MODEL
from ...ir.effects import SPENDERS
from ..host import environment
from ..host.errors import KindError
from .prices import Price
from .providers import DEFAULT, PROVIDERS
from .settings import Configuration, ModelEntry


class Unavailable(KindError):
    """A model that cannot be asked: a word and a sentence."""


class Model(NamedTuple):
    """name: as the provider knows it. key: the variable that holds the key, None for the client's own."""

    name: str
    provider: str
    base_url: str | None = None
    key: str | None = None
    price: Price | None = None


def choose(name: str, entries: dict[str, ModelEntry]) -> Model:
    """The model that a name means in a project."""
    entry = entries.get(name)
    if entry is not None:
        provider = entry.provider or _provider_of(entry.model or name)
        return Model(entry.model or name, provider, entry.base_url, entry.key, entry.price)
    provider, slash, rest = name.partition("/")
    if slash and provider in PROVIDERS and rest:
        return Model(rest, provider)
    return Model(name, _provider_of(name))


def asked(kind: str, args: Mapping[str, Any], settings: Configuration) -> Model | None:
    """The model that an effect asks; None if it asks none or that is not known in advance."""
    choice = CHOICES[kind] if kind in SPENDERS else None
    return None if choice is None else choice(args, settings)


def of_evaluation(args: Mapping[str, Any], settings: Configuration) -> Model | None:
    """The model of an `evaluate` effect."""
    return choose(args["model"], settings.models)


def of_search(args: Mapping[str, Any], settings: Configuration) -> Model | None:
    """The model that ranks what a `context` effect finds, if one does."""
    return choose(args.get("model") or default_model(), settings.models) if args.get("rerank") else None


def of_task_effect(args: Mapping[str, Any], settings: Configuration) -> Model | None:
    """The model of a `task` effect; None if an agent does the task."""
    definition = args.get("definition") or {}
    is_agent = (definition.get("runner") or settings.tasks.runner) == "agent"
    return None if is_agent else of_task(definition, settings)


# The model that an effect asks, by kind; None if the performer itself reports its cost.
CHOICES = {"evaluate": of_evaluation, "context": of_search, "task": of_task_effect, "agent": None}


def of_task(definition: Mapping[str, Any], settings: Configuration) -> Model:
    """The model of a task: its own, else the project's, else the default model."""
    return choose(definition.get("model") or settings.tasks.model or default_model(), settings.models)


def default_model() -> str:
    """The model to ask if nothing names one."""
    return environment.environ.get("LLC_LLM_MODEL") or DEFAULT_LLM_MODEL


def _provider_of(name: str) -> str:
    for provider, row in PROVIDERS.items():
        if name.startswith(row.prefixes):
            return provider
    return DEFAULT


def key_variable(model: Model) -> str:
    """The environment variable for the key of a model."""
    return model.key or PROVIDERS[model.provider].key


def has_key(model: Model) -> bool:
    """Whether a key is set for a model, or its server has an address of its own, which may need none."""
    row = PROVIDERS[model.provider]
    names = [model.key] if model.key else [row.key, *row.other_keys]
    environ = environment.environ
    return model.base_url is not None or any(environ.get(name) for name in names)


def address(model: Model) -> dict[str, Any]:
    """`base_url` and `key` of a request. Raises `Unavailable` where the client or the key is missing."""
    row = PROVIDERS[model.provider]
    if row.extra and importlib.util.find_spec(row.package) is None:
        raise Unavailable(
            "missing-extra",
            f"`{model.name}` needs the `{row.package}` client; "
            f"in a checkout of llc: pip install '.[{row.extra}]'",
        )
    key = environment.environ.get(model.key) if model.key else None
    if model.key and not key:
        raise Unavailable("missing-key", f"there is no API key for `{model.name}`; set {model.key}")
    if row.extra and not model.key and not environment.environ.get(row.key):
        # A server with an address of its own may need no key, but the client insists on one.
        if model.base_url is None and not environment.environ.get(row.base_url):
            raise Unavailable("missing-key", f"there is no API key for `{model.name}`; set {row.key}")
        key = "none"
    return {"base_url": model.base_url, "key": key}
