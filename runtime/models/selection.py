"""Which provider a model has, where it is and what it costs.

A model's own name says its provider (`claude-…`, `gpt-…`); `provider/name` says it outright; and the
project may give models names of its own, with a provider, an address and a key (`models:` in
`.loops/config.yaml`). A name that says nothing is taken for one of the Messages API.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any, NamedTuple

from ...ir.compile_options import DEFAULT_LLM_MODEL
from ..host import environment
from ..project.configuration import Configuration
from ..project.configuration_schema import ModelEntry
from .prices import Price


class Provider(NamedTuple):
    """module: of this package. package: its client, which `extra` of llc installs, '' if llc has it."""

    module: str
    package: str
    extra: str
    key: str
    prefixes: tuple[str, ...]


PROVIDERS = {
    "anthropic": Provider("anthropic_provider", "anthropic", "", "ANTHROPIC_API_KEY", ("claude-",)),
    "openai": Provider(
        "openai_provider", "openai", "openai", "OPENAI_API_KEY", ("gpt-", "o1", "o3", "o4", "chatgpt-")
    ),
}
DEFAULT = "anthropic"


class Unavailable(Exception):
    """A model that cannot be asked: a word and a sentence."""

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        self.message = message
        super().__init__(kind, message)


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
    """The model that an effect will ask, None where it will ask none or that is not known before."""
    if kind == "evaluate":
        return choose(args["model"], settings.models)
    if kind == "context":
        return choose(args.get("model") or default_model(), settings.models) if args.get("rerank") else None
    if kind != "task":
        return None
    definition = args.get("definition") or {}
    is_agent = (definition.get("runner") or settings.tasks.runner) == "agent"
    return None if is_agent else of_task(definition, settings)


def of_task(definition: Mapping[str, Any], settings: Configuration) -> Model:
    """The model of a task: its own, else the project's, else the default."""
    return choose(definition.get("model") or settings.tasks.model or default_model(), settings.models)


def default_model() -> str:
    """The model that is asked where nobody names one."""
    return environment.environ.get("LLC_LLM_MODEL") or DEFAULT_LLM_MODEL


def _provider_of(name: str) -> str:
    for provider, row in PROVIDERS.items():
        if name.startswith(row.prefixes):
            return provider
    return DEFAULT


def address(model: Model) -> dict[str, Any]:
    """`base_url` and `key` of a request. Raises `Unavailable` where the client or the key is missing."""
    row = PROVIDERS[model.provider]
    if row.extra and importlib.util.find_spec(row.package) is None:
        raise Unavailable(
            "missing-extra",
            f"`{model.name}` needs the `{row.package}` client: pip install 'llc-loops[{row.extra}]'",
        )
    key = environment.environ.get(model.key) if model.key else None
    if model.key and not key:
        raise Unavailable("missing-key", f"there is no API key for `{model.name}`; set {model.key}")
    if row.extra and not model.key and not environment.environ.get(row.key):
        # A server of one's own asks for none, and the client does not go without.
        if model.base_url is None and not environment.environ.get("OPENAI_BASE_URL"):
            raise Unavailable("missing-key", f"there is no API key for `{model.name}`; set {row.key}")
        key = "none"
    return {"base_url": model.base_url, "key": key}
