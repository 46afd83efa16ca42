"""A small client of the Messages API with the names of the package `anthropic` that the provider uses.

Importing the real package takes more than a second of processor time in each process that calls a model.
Tests whose subject is not the client put this folder first on `sys.path` (fixture `light_client`); the tests
of models, tasks and rules use the real one.
"""

from __future__ import annotations

import http.client
import json
import os
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace, TracebackType
from typing import Any
from urllib.parse import urlsplit

_TRIES = 3


class APIError(Exception):
    """An error of the API. message: its text. body: the decoded body of the response."""

    def __init__(self, message: str, body: object = None) -> None:
        super().__init__(message)
        self.message = message
        self.body = body


class APIConnectionError(APIError):
    pass


class APITimeoutError(APIConnectionError):
    pass


class APIStatusError(APIError):
    def __init__(self, response: _Response, body: bytes) -> None:
        try:
            decoded = json.loads(body)
        except ValueError:
            decoded = None
        super().__init__(f"Error code: {response.status_code} - {decoded}", decoded)
        self.status_code = response.status_code
        self.response = response


class BadRequestError(APIStatusError):
    pass


class DefaultHttpxClient:
    def __init__(self, event_hooks: dict[str, list[Callable[[Any], None]]]) -> None:
        self.on_response = event_hooks["response"]


class _Response:
    def __init__(self, raw: http.client.HTTPResponse) -> None:
        self.raw = raw
        self.status_code = raw.status
        self.headers = {name.lower(): value for name, value in raw.getheaders()}

    def read(self) -> bytes:
        return self.raw.read()


class _Stream:
    """The events of a reply."""

    def __init__(self, connection: http.client.HTTPConnection, response: _Response) -> None:
        self._connection = connection
        self.response = response

    def __enter__(self) -> _Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def __iter__(self) -> Iterator[Any]:
        for line in self.response.raw:
            if line.startswith(b"data:"):
                yield json.loads(line[5:], object_hook=lambda fields: SimpleNamespace(**fields))


class Anthropic:
    def __init__(
        self, http_client: DefaultHttpxClient, base_url: str | None = None, api_key: str | None = None
    ) -> None:
        self._hooks = http_client.on_response
        self._url = urlsplit(base_url or os.environ["ANTHROPIC_BASE_URL"])
        key = api_key or os.environ.get("ANTHROPIC_API_KEY")
        token = os.environ.get("ANTHROPIC_AUTH_TOKEN")
        if not key and not token:
            raise TypeError("Could not resolve the authentication method: there is no api_key")
        self._headers = {"x-api-key": key} if key else {"authorization": f"Bearer {token}"}
        self._headers |= {"content-type": "application/json", "anthropic-version": "2023-06-01"}
        self.messages = SimpleNamespace(create=self._create)

    def _create(self, *, timeout: float, **sent: Any) -> _Stream:
        """Send a request; repeat it after an error that may pass, as the real client does."""
        for number in range(1, _TRIES + 1):
            connection = http.client.HTTPConnection(
                self._url.hostname or "", self._url.port or 80, timeout=timeout
            )
            try:
                path = f"{self._url.path.rstrip('/')}/v1/messages"
                connection.request("POST", path, json.dumps(sent), self._headers)
                response = _Response(connection.getresponse())
            except TimeoutError as error:
                raise APITimeoutError("Request timed out.") from error
            except (OSError, http.client.HTTPException) as error:
                if number == _TRIES:
                    raise APIConnectionError("Connection error.") from error
                time.sleep(0.5)
                continue
            for hook in self._hooks:
                hook(response)
            if response.status_code == 200:
                return _Stream(connection, response)
            body = response.read()
            connection.close()
            is_final = response.status_code not in (408, 409, 429) and response.status_code < 500
            if is_final or number == _TRIES or response.headers.get("x-should-retry") == "false":
                raise (BadRequestError if response.status_code == 400 else APIStatusError)(response, body)
            time.sleep(float(response.headers.get("retry-after", "0.5")))
        raise AssertionError
