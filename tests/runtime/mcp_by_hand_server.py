"""An MCP server that writes protocol messages itself, also invalid ones: `python mcp_by_hand_server.py`.

Its tools: `say` writes the given text, with ID replaced by the id of the request; `flood` answers with 2 MB;
`hang` stops reading; `die` ends the process. The file `offers`, if it exists, replaces the list of tools. The
server waits DELAY seconds before it reads its input.
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
    request = json.loads(line)
    if "id" not in request:
        continue
    result: object = {}
    if request["method"] == "initialize":
        version = request["params"]["protocolVersion"]
        server_info = {"name": "by hand", "version": "1"}
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server_info}
    elif request["method"] == "tools/list":
        result = {"tools": TOOLS}
        if os.path.exists("offers"):
            with open("offers", encoding="utf-8") as file:
                result = json.load(file)
    elif request["method"] == "tools/call":
        name, arguments = request["params"]["name"], request["params"].get("arguments") or {}
        if name == "die":
            sys.stderr.write("a" * 200_000 + "\nlast words\n")
            sys.exit(3)
        if name == "hang":
            time.sleep(600)
        if name == "say":
            write(arguments.get("text", "").replace("ID", json.dumps(request["id"])))
            continue
        result = {"content": [{"type": "text", "text": "x" * (2 << 20)}]}
    write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}))
