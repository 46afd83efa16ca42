"""Encoded forms of secrets, compared with the encoders that produce them."""

from __future__ import annotations

import base64
import html
import json
import shlex
import subprocess
import urllib.parse
from collections.abc import Callable
from xml.sax import saxutils

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llc.runtime.host.secrets import Secrets
from llc.vm.primitives.handlers import HANDLERS

_SPECIAL = " !\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~\tüé€"
# The letters at both ends make sure that a part of the secret is found if it is left.
_middle = st.text(st.sampled_from(_SPECIAL + "ab1"), max_size=12)
secret_values = st.builds("{}{}Qz7w5".format, st.sampled_from(["Kx9", "~Kx9", "#Kx9"]), _middle)
around = st.text(st.sampled_from(" x'\"&<"), max_size=4)

ENCODERS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "json": json.dumps,
    "json in UTF-8": lambda text: json.dumps(text, ensure_ascii=False),
    "json of PHP": lambda text: json.dumps(text).replace("/", "\\/"),
    "json in json": lambda text: json.dumps(json.dumps({"a": text})),
    "json in json in UTF-8": lambda text: json.dumps(json.dumps(text, ensure_ascii=False)),
    "json of PHP in json": lambda text: json.dumps(json.dumps(text).replace("/", "\\/")),
    "repr": repr,
    "ascii": ascii,
    "repr of bytes": lambda text: repr(text.encode()),
    "quote": urllib.parse.quote,
    "quote without safe characters": lambda text: urllib.parse.quote(text, safe=""),
    "encodeURIComponent": lambda text: urllib.parse.quote(text, safe="!'()*"),
    "quote_plus": urllib.parse.quote_plus,
    "urlencode": lambda text: urllib.parse.urlencode({"q": text}),
    "lower-case escapes": lambda text: _lower(urllib.parse.quote(text, safe="")),
    "lower-case escapes with plus": lambda text: _lower(urllib.parse.quote_plus(text)),
    "html": html.escape,
    "html text": lambda text: html.escape(text, quote=False),
    "xml": saxutils.escape,
    "shlex.quote": shlex.quote,
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 for URLs": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
    "Basic auth": lambda text: base64.b64encode(f"user:{text}".encode()).decode(),
    "Basic auth of a longer name": lambda text: base64.b64encode(f"user-1:{text}".encode()).decode(),
    "Basic auth of another name": lambda text: base64.b64encode(f"user12:{text}".encode()).decode(),
}


def _lower(text: str) -> str:
    first, *rest = text.split("%")
    return "%".join([first, *(part[:2].lower() + part[2:] for part in rest)])


def _is_hidden(text: str, secret: str) -> bool:
    """Whether a masked text has no part of a secret that an encoder writes as letters."""
    digits = {base64.b64encode(bytes(shift) + secret.encode()).decode()[4:12] for shift in range(3)}
    return "Kx9" not in text and "Qz7w5" not in text and not any(part in text for part in digits)


@pytest.mark.parametrize("name", ENCODERS)
@given(secret_values, around)
def test_an_encoded_secret_is_masked_and_restored(name: str, secret: str, text: str) -> None:
    """The output of real encoders is masked, and its references restore the same text."""
    secrets = Secrets({"MY_TOKEN": secret})
    encoded = ENCODERS[name](text + secret + text)
    assert secrets.occur_in(encoded)
    assert _is_hidden(secrets.mask(encoded), secret)
    parts = secrets.split(encoded)
    assert secrets.join(parts) == encoded
    assert not any("Kx9" in part for part in parts[::2])


@pytest.mark.parametrize("name", ENCODERS)
@given(secret_values)
def test_an_encoded_secret_is_masked_in_a_quoted_command(name: str, secret: str) -> None:
    """A captured output may be quoted for the shell."""
    secrets = Secrets({"MY_TOKEN": secret})
    for quote in ("shell_word", "shell_single", "shell_double", "shell_heredoc"):
        text = str(HANDLERS[quote](ENCODERS[name](secret)))
        assert _is_hidden(secrets.mask(f"printf %s {text}"), secret), text
        assert secrets.join(secrets.split(text)) == text


@given(
    st.lists(secret_values, min_size=1, max_size=8),
    st.sampled_from(["", "-", "x "]),
    st.sampled_from("b\n"),
)
def test_printf_q_of_bash_is_masked(values: list[str], before: str, between: str) -> None:
    """The secret as a word, inside a word, and in a word with a line break, which bash writes in octal."""
    values = [value.replace("b", between) for value in values]
    for locale in ("C", "C.UTF-8"):
        done = subprocess.run(
            ["bash", "-c", r"printf '%q\0' "'"$@"', "-", *(before + value for value in values)],
            capture_output=True, check=True, env={"LC_ALL": locale},
        )  # fmt: skip
        written = done.stdout.decode("utf-8", "surrogateescape").split("\0")
        for value, text in zip(values, written, strict=False):
            assert _is_hidden(Secrets({"MY_TOKEN": value}).mask(text), value), (locale, value, text)


def test_base64_with_line_breaks_is_masked() -> None:
    """As written by `base64` and `openssl`."""
    token = "Kx9" + "token-of-90-characters" * 4 + "Qz7w5"
    for length in (76, 64):
        digits = base64.b64encode(token.encode()).decode()
        lines = "\n".join(digits[at : at + length] for at in range(0, len(digits), length))
        assert digits[4:12] not in Secrets({"MY_TOKEN": token}).mask(lines)


def test_a_plain_token_has_few_forms() -> None:
    """Masking is applied to all output, so a usual token has few search texts."""
    assert len(Secrets({"MY_TOKEN": "sk1234567890abcdef"}).texts) <= 6


def test_masking_needs_few_searches() -> None:
    """Forms that share a part are searched for together."""
    values = {f"N{n}_TOKEN": f"tok{n}en{n}{n}abcdefgh" for n in range(8)}
    secrets = Secrets({**values, "A_SECRET": "p@ss wörd/'1", "B_SECRET": 'q&ss+w\\rd"2'})
    assert len(secrets.texts) > 2 * len(secrets.text_groups)
    assert len(secrets.text_groups) <= 40
