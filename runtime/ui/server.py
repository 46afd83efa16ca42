"""The local server: its routes, and its life cycle from the socket to Ctrl-C (`spec/ui.md`)."""

from __future__ import annotations

import gc
import hashlib
import json
import os.path
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response, StreamingResponse
    from starlette.routing import Route
except ImportError as error:
    _import_error: ImportError | None = error
else:
    _import_error = None

from ...ir.diagnostics import CompileError
from ..graph.picture import csp_hash
from ..host import pipes
from ..host.errors import Failure, UserError, reason
from ..host.screen import printable
from ..journal.codec import strict_json
from ..journal.journal import JournalError
from ..report.page import asset
from .access import Access, Guard
from .job_thread import JobThread
from .project_view import ProjectView, Requests
from .watch import Watch

_ASSETS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "assets")
_MAX_BODY_BYTES = 1 << 20
# Timeout for open responses after Ctrl-C, and interval of keep-alive comments in a stream.
_GRACE_S = 1
_ALIVE_S = 15.0
_FRAMES = "frame-ancestors 'none'"
# HTTP status by error id; all other errors have 409.
_STATUSES = {"unknown-run": 404, "unknown-loop": 404, "bad-answer": 400, "bad-option": 400}


class Service:
    """The routes of one project.

    is_ending: returns True when streams must end. requests: see `ProjectView`.
    """

    def __init__(
        self, access: Access, is_ending: Callable[[], bool], requests: Requests | None = None
    ) -> None:
        self._access = access
        self._is_ending = is_ending
        self._view = ProjectView(requests)
        self._jobs = JobThread()
        # For `resume` and `fork`, which wait for another process.
        self._starts = JobThread()
        self._watches: dict[str, Watch] = {}
        style = asset("page.css") + asset("project.css", _ASSETS)
        script = asset("text.js") + asset("project.js", _ASSETS)
        self._policy = "; ".join(
            (
                "default-src 'none'",
                f"script-src {csp_hash(script)}",
                f"style-src {csp_hash(style)}",
                "connect-src 'self'",
                "base-uri 'none'",
                "form-action 'none'",
                _FRAMES,
            )
        )
        self._page = asset("project.html", _ASSETS).replace("<!-- style -->", f"<style>{style}</style>")
        if access.is_read_only:
            self._page = self._page.replace("<html", "<html data-read-only", 1)
        self._page = self._page.replace("<!-- script -->", f"<script>{script}</script>")
        self._live = asset("live.js", _ASSETS)

    def application(self) -> Starlette:
        view = self._view
        plain = {
            "/api/runs": view.runs,
            "/api/questions": view.questions,
            "/api/budget": view.budget,
            "/api/loops": view.loops,
        }
        of_run = {"/api/runs/{run}": view.status, "/api/runs/{run}/model": view.model}
        routes = [
            Route("/", self._start),
            Route("/session", self._begin_session, methods=["POST"]),
            *(Route(path, self._reading(function)) for path, function in plain.items()),
            *(Route(path, self._reading(function)) for path, function in of_run.items()),
            Route("/api/runs/{run}/events", self._events),
            Route("/api/runs/{run}/answer", self._answer, methods=["POST"]),
            Route("/api/runs/{run}/stop", self._stop, methods=["POST"]),
            Route("/api/runs/{run}/resume", self._resume, methods=["POST"]),
            Route("/api/runs/{run}/fork", self._fork, methods=["POST"]),
            Route("/runs/{run}", self._run),
            Route("/loops/{loop}", self._graph),
        ]
        handlers: dict[Any, Any] = dict.fromkeys((UserError, JournalError, CompileError, Exception), _failed)
        return Starlette(routes=routes, exception_handlers=handlers)

    # --- pages ------------------------------------------------------------------------------------

    async def _start(self, request: Request) -> Response:
        return _html(self._page, self._policy)

    async def _begin_session(self, request: Request) -> Response:
        """Exchange the token, which access control has checked, for the cookie."""
        return Response(status_code=204, headers={"set-cookie": self._access.cookie})

    async def _run(self, request: Request) -> Response:
        name = request.path_params["run"]
        page = await self._jobs.do(self._view.page, name, self._live, self._access.is_read_only)
        return _html(page, _FRAMES)

    async def _graph(self, request: Request) -> Response:
        return _html(await self._jobs.do(self._view.graph, request.path_params["loop"]), _FRAMES)

    # --- data -------------------------------------------------------------------------------------

    def _reading(self, function: Callable[..., Any]) -> Callable[[Request], Awaitable[Response]]:
        """An endpoint that returns the result of a function, or 304 if the client has the same data."""

        async def endpoint(request: Request) -> Response:
            data = strict_json(await self._jobs.do(function, *request.path_params.values()))
            tag = f'"{hashlib.sha256(data).hexdigest()[:32]}"'
            if request.headers.get("if-none-match") == tag:
                return Response(status_code=304, headers={"etag": tag})
            return Response(data, media_type="application/json", headers={"etag": tag})

        return endpoint

    async def _answer(self, request: Request) -> Response:
        body = await _body(request)
        name = request.path_params["run"]
        fields = (body.get("question"), body.get("text"), body.get("answer"))
        return _json(await self._jobs.do(self._view.answer, name, *fields))

    async def _stop(self, request: Request) -> Response:
        return _json(await self._jobs.do(self._view.stop, request.path_params["run"]), 202)

    async def _resume(self, request: Request) -> Response:
        return _json(await self._starts.do(self._view.resume, request.path_params["run"]), 202)

    async def _fork(self, request: Request) -> Response:
        body = await _body(request)
        name = request.path_params["run"]
        return _json(await self._starts.do(self._view.fork, name, body.get("at")), 202)

    async def _events(self, request: Request) -> Response:
        """Updates of a run as server-sent events, starting from the version of the viewer."""
        name = request.path_params["run"]
        version = request.headers.get("last-event-id") or request.query_params.get("from", "")
        # Report an error as the response, not as the end of a stream.
        await self._jobs.do(self._view.since, name, version)
        return StreamingResponse(self._updates(name, version), media_type="text/event-stream")

    async def _updates(self, name: str, version: str) -> AsyncIterator[bytes]:
        if name not in self._watches:
            self._watches[name] = Watch(lambda: self._jobs.do(self._view.version, name), self._is_ending)
        watch = self._watches[name]
        watch.viewers += 1
        try:
            yield b": begins\n\n"
            while not self._is_ending():
                try:
                    current, update, is_live = await self._jobs.do(self._view.since, name, version)
                except (UserError, JournalError):
                    yield b"event: gone\ndata: {}\n\n"
                    return
                if update is not None:
                    yield b"id: %s\ndata: %s\n\n" % (current.encode(), update)
                elif current != version:
                    yield b"event: reset\ndata: {}\n\n"
                    return
                elif not is_live:
                    yield b"event: end\ndata: {}\n\n"
                    return
                elif not await watch.wait_for_change((current, is_live), _ALIVE_S):
                    yield b": alive\n\n"
                version = current
        finally:
            watch.viewers -= 1
            if not watch.viewers:
                watch.close()
                self._watches.pop(name)


def _html(text: str | bytes, policy: str) -> Response:
    headers = {"content-security-policy": policy}
    return Response(text, media_type="text/html", headers=headers)


def _json(value: Any, status: int = 200) -> Response:
    return Response(strict_json(value), status, media_type="application/json")


async def _body(request: Request) -> dict[str, Any]:
    """The JSON object in the body of a request. Raises UserError."""
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > _MAX_BODY_BYTES:
            raise UserError("bad-option", "the body is too long")
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise UserError("bad-option", "the body must be application/json")
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        raise UserError("bad-option", "the body is not JSON") from None
    if not isinstance(body, dict):
        raise UserError("bad-option", "the body must be an object")
    return body


async def _failed(request: Request, error: Exception) -> Response:
    id: str
    help = None
    match error:
        case UserError():
            status, id, message = _STATUSES.get(error.id, 409), error.id, error.message
            help = printable(error.help) if error.help else None
        case CompileError():
            status, id, message = 409, error.diagnostics[0].id, error.diagnostics[0].message
        case JournalError():
            status, id, message = 409, "no-record", error.message
        case _:
            status, id, message = 500, "internal", "this is a bug in llc"
    return _json({"error": {"id": id, "message": printable(message), "help": help}}, status)


def serve(
    port: int, on_ready: Callable[[str], None], requests: Requests | None = None, is_read_only: bool = False
) -> None:
    """Serve the project until SIGINT or SIGTERM, which then has its usual effect.

    port: 0 for a free port. on_ready: called with the address. requests: see `ProjectView`. is_read_only:
    refuse changes. Raises UserError if the port or a package is not available.
    """
    if _import_error is not None:
        raise Failure(
            "missing-package",
            f"a package of `llc ui` is missing ({_import_error})",
            "in a checkout of llc: pip install '.[ui]'",
        )
    try:
        listener = pipes.listen(port)
    except OSError as error:
        help = "name another port, or omit --port"
        raise Failure("cannot-listen", f"cannot listen on port {port}: {reason(error)}", help) from None
    with listener:
        number = listener.getsockname()[1]
        access = Access(number, is_read_only)
        server: uvicorn.Server
        service = Service(access, lambda: server.should_exit, requests)
        config = uvicorn.Config(
            Guard(service.application(), access),
            log_config=None,
            log_level="critical",
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=_GRACE_S,
        )
        server = uvicorn.Server(config)
        gc.enable()  # disabled for short commands; this one runs for a long time
        on_ready(f"http://127.0.0.1:{number}/#token={access.token}")
        server.run(sockets=[listener])
