"""Table of model providers.

A provider needs a row here and a module in `runtime/models/` with the functions that `models.provider`
describes.
"""

from __future__ import annotations

from ...ir.light_records import LightRecord


class Provider(LightRecord):
    """A model provider.

    Args:
        module: module of `runtime/models/` that calls the provider's API.
        package: client package that the module imports.
        key: environment variable from which the client reads the API key.
        base_url: environment variable from which the client reads the address.
        prefixes: prefixes of the provider's model names.
        extra: extra of llc that installs the package; "" if llc itself requires it.
        is_forced: whether a request can force a tool call, so that an answer in plain text is an error.
        other_keys: environment variables that replace `key`.
    """

    module: str
    package: str
    key: str
    base_url: str
    prefixes: tuple[str, ...]
    extra: str = ""
    is_forced: bool = False
    other_keys: tuple[str, ...] = ()


PROVIDERS = {
    "anthropic": Provider(
        "anthropic_provider",
        "anthropic",
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_BASE_URL",
        ("claude-",),
        is_forced=True,
        other_keys=("ANTHROPIC_AUTH_TOKEN",),
    ),
    "openai": Provider(
        "openai_provider",
        "openai",
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        ("gpt-", "o1", "o3", "o4", "chatgpt-"),
        extra="openai",
    ),
}
# Provider of a model whose name does not imply one.
DEFAULT = "anthropic"
