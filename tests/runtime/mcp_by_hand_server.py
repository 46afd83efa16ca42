"""An MCP server that speaks the protocol by hand, as badly as it is told: `python mcp_by_hand_server.py`.

Its tools: `say` writes the text it is given, ID being the request's id; `flood` answers with 2 MB; `hang`
reads nothing any more; `die` ends. The file `offers`, if there is one, has what it offers. It waits DELAY
seconds before it listens.
"""

from __future__ import annotations

import json
import os
import sys
import time

ANY = {"type": "object", "properties": {"text": {"type": "string"}}}
TOOLS = [{"name": name, "inputSchema": ANY} for name in ("say", "flood", "hang", "die")]


def write(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


with open("pids", "a", encoding="ascii") as file:
    file.write(f"{os.getpid()}\n")
time.sleep(float(os.environ.get("DELAY", "0")))
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    result: object = {}
    if asked["method"] == "initialize":
        version = asked["params"]["protocolVersion"]
        about = {"name": "by hand", "version": "1"}
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
    elif asked["method"] == "tools/list":
        result = {"tools": TOOLS}
        if os.path.exists("offers"):
            with open("offers", encoding="utf-8") as file:
                result = json.load(file)
    elif asked["method"] == "tools/call":
        name, given = asked["params"]["name"], asked["params"].get("arguments") or {}
        if name == "die":
            sys.stderr.write("a" * 200_000 + "\nlast words\n")
            sys.exit(3)
        if name == "hang":
            time.sleep(600)
        if name == "say":
            write(given.get("text", "").replace("ID", json.dumps(asked["id"])))
            continue
        result = {"content": [{"type": "text", "text": "x" * (2 << 20)}]}
    write(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}))
