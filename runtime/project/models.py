"""Model resolution: provider, address, key and price of a model by its name.

A model's name implies its provider (`claude-…`, `gpt-…`) or states it as `provider/name`. A project can
define its own names with a provider, an address and a key (`models:` in `.loops/config.yaml`). All other
names belong to the default provider.
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
    """A model cannot be called because its client or its key is missing."""


class Model(NamedTuple):
    """A resolved model.

    Args:
        name: the provider's name for the model.
        provider: key of `PROVIDERS`.
        base_url: address of the server; None for the provider's default.
        key: environment variable that contains the key; None for the client's own variable.
        price: USD per million input and output tokens; None for the price in `stdlib/prices.json`.
    """

    name: str
    provider: str
    base_url: str | None = None
    key: str | None = None
    price: Price | None = None


def choose(name: str, entries: dict[str, ModelEntry]) -> Model:
    """Resolve a model name. entries: the project's own models by name."""
    entry = entries.get(name)
    if entry is not None:
        provider = entry.provider or _provider_of(entry.model or name)
        return Model(entry.model or name, provider, entry.base_url, entry.key, entry.price)
    provider, slash, rest = name.partition("/")
    if slash and provider in PROVIDERS and rest:
        return Model(rest, provider)
    return Model(name, _provider_of(name))


def of_effect(kind: str, args: Mapping[str, Any], settings: Configuration) -> Model | None:
    """The model that an effect calls; None if it calls no model or the model is not known in advance."""
    choice = CHOICES[kind] if kind in SPENDERS else None
    return None if choice is None else choice(args, settings)


def of_evaluation(args: Mapping[str, Any], settings: Configuration) -> Model | None:
    """The model of an `evaluate` effect."""
    return choose(args["model"], settings.models)


def of_search(args: Mapping[str, Any], settings: Configuration) -> Model | None:
    """The model that ranks the results of a `context` effect; None without ranking."""
    return choose(args.get("model") or default_model(), settings.models) if args.get("rerank") else None


def of_task_effect(args: Mapping[str, Any], settings: Configuration) -> Model | None:
    """The model of a `task` effect; None if an agent performs the task."""
    definition = args.get("definition") or {}
    is_agent = (definition.get("runner") or settings.tasks.runner) == "agent"
    return None if is_agent else of_task(definition, settings)


# Function that returns the model of an effect, by kind; None if the performer itself reports its cost.
CHOICES = {"evaluate": of_evaluation, "context": of_search, "task": of_task_effect, "agent": None}


def of_task(definition: Mapping[str, Any], settings: Configuration) -> Model:
    """The model of a task: its own, otherwise the project's, otherwise the default model."""
    return choose(definition.get("model") or settings.tasks.model or default_model(), settings.models)


def default_model() -> str:
    """The name of the default model."""
    return environment.environ.get("LLC_LLM_MODEL") or DEFAULT_LLM_MODEL


def _provider_of(name: str) -> str:
    for provider, row in PROVIDERS.items():
        if name.startswith(row.prefixes):
            return provider
    return DEFAULT


def key_variable(model: Model) -> str:
    """The name of the environment variable that contains the key of a model."""
    return model.key or PROVIDERS[model.provider].key


def has_key(model: Model) -> bool:
    """Whether a key is set for a model. A server with its own address may need none and counts as True."""
    row = PROVIDERS[model.provider]
    names = [model.key] if model.key else [row.key, *row.other_keys]
    environ = environment.environ
    return model.base_url is not None or any(environ.get(name) for name in names)


def address(model: Model) -> dict[str, Any]:
    """`base_url` and `key` of a request. Raises `Unavailable` if the client or the key is missing."""
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
        # A server with its own address may need no key, but the client requires a value.
        if model.base_url is None and not environment.environ.get(row.base_url):
            raise Unavailable("missing-key", f"there is no API key for `{model.name}`; set {row.key}")
        key = "none"
    return {"base_url": model.base_url, "key": key}
