"""Access control of the local server, as an ASGI middleware: host names, origins, token and session.

The server listens on the loopback interface, which pages of other sites and programs of other users can also
reach. Therefore each request needs a secret, and requests that a browser makes for another site are refused.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any

from ..host import environment
from ..journal.codec import to_json

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

# Paths without data of the project; the page there exchanges the token for the session cookie.
OPEN_PATHS = ("/", "/session")
_HEADERS = {
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


def new_secret() -> str:
    """A random secret of 256 bits, in base64."""
    return base64.urlsafe_b64encode(environment.urandom(32)).decode().rstrip("=")


class Access:
    """Rules for requests to the server at a port. is_read_only: refuse requests that change something."""

    def __init__(self, port: int, is_read_only: bool = False) -> None:
        self.is_read_only = is_read_only
        self.token = new_secret()
        self._session = new_secret()
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        if port == 80:
            self._hosts |= {"127.0.0.1", "localhost"}
        self._cookie = f"llc-ui-{port}"

    @property
    def cookie(self) -> str:
        """The `Set-Cookie` header of the session; hidden from scripts and from requests of other sites."""
        return f"{self._cookie}={self._session}; HttpOnly; SameSite=Strict; Path=/"

    def has_token(self, headers: dict[str, str]) -> bool:
        kind, _, token = headers.get("authorization", "").partition(" ")
        return kind.lower() == "bearer" and _is_same(token.strip(), self.token)

    def has_session(self, headers: dict[str, str]) -> bool:
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(self._cookie)
        except CookieError:
            return False
        return cookie is not None and _is_same(cookie.value, self._session)

    def refusal(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, str] | None:
        """HTTP status and message of a refused request; None if the request is allowed."""
        host, origin = headers.get("host", ""), headers.get("origin")
        if host not in self._hosts:
            return 421, "this server answers to 127.0.0.1 and localhost only"
        if origin is not None and origin != f"http://{host}":
            return 403, "requests of other sites are refused"
        is_foreign = headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none")
        # The start page itself has no data, so documents may link to it.
        if is_foreign and not (path == "/" and method == "GET"):
            return 403, "requests of other sites are refused"
        is_reading = method in ("GET", "HEAD")
        if not self.has_token(headers):
            if path in OPEN_PATHS and is_reading:
                return None
            if not self.has_session(headers):
                message = "open the address printed by `llc ui`, or send its token: Authorization: Bearer"
                return 401, message
            if not is_reading and origin is None:
                return 403, "a request that changes something needs an Origin, or the token"
        if self.is_read_only and not is_reading and path not in OPEN_PATHS:
            return 403, "changes are refused: `llc ui` was started with --read-only"
        return None


def _is_same(text: str, secret: str) -> bool:
    return hmac.compare_digest(text.encode("utf-8", "replace"), secret.encode())


class Guard:
    """Middleware: applies the access control and adds isolating headers to every response."""

    def __init__(self, app: Application, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return

        async def send_isolated(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                names = {name for name, _ in headers}
                headers += [
                    (name.encode(), value.encode())
                    for name, value in _HEADERS.items()
                    if name.encode() not in names
                ]
                message["headers"] = headers
            await send(message)

        # A repeated header counts as empty.
        headers: dict[str, str] = {}
        for name, value in scope["headers"]:
            text = name.decode("latin-1")
            headers[text] = "" if text in headers else value.decode("latin-1")
        refusal = self._access.refusal(scope["method"], scope["path"], headers)
        if refusal is None:
            await self._app(scope, receive, send_isolated)
            return
        status, message = refusal
        body = to_json({"error": {"id": "not-permitted", "message": message}})
        kind = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send_isolated({"type": "http.response.start", "status": status, "headers": kind})
        await send_isolated({"type": "http.response.body", "body": body})
