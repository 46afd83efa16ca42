"""Server for the part of the Messages API that a verdict needs: `python many_models.py SECONDS`.

Each reply takes the given number of seconds. Prints its address; ends when its standard input is
closed.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_VERDICT = json.dumps({"verdict": "success", "confidence": 0.9, "reason": "it is so"})
_EVENTS = (
    {"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "model": "m",
     "content": [], "stop_reason": None, "stop_sequence": None,
     "usage": {"input_tokens": 100, "output_tokens": 1}}},
    {"type": "content_block_start", "index": 0,
     "content_block": {"type": "tool_use", "id": "t", "name": "evaluate", "input": {}}},
    {"type": "content_block_delta", "index": 0,
     "delta": {"type": "input_json_delta", "partial_json": _VERDICT}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": None},
     "usage": {"output_tokens": 30}},
    {"type": "message_stop"},
)  # fmt: skip
_BODY = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in _EVENTS).encode()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        time.sleep(float(sys.argv[1]))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(_BODY)))
        self.end_headers()
        self.wfile.write(_BODY)

    def log_message(self, format: str, *args: object) -> None:
        """Discard the log message."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1000


def main() -> None:
    server = _Server(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
