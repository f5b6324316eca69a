"""A server without the SDK, quick to start and free to misbehave: `python -S mcp_raw_server.py FILE.json`.

The file says: {"tools": [...], "page": tools a page, "first": text printed before anything else}.
"""

import json
import os
import subprocess
import sys
import threading
import time

with open(sys.argv[1]) as setup:
    SETUP = json.load(setup)
PAGE = SETUP.get("page", 10**9)
LOCK = threading.Lock()
CANCELLED = threading.Event()


def send(message):
    with LOCK:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def listed(params):
    start = int((params or {}).get("cursor") or 0)
    tools = SETUP["tools"][start : start + PAGE]
    more = {"nextCursor": str(start + PAGE)} if start + PAGE < len(SETUP["tools"]) or SETUP.get("endless") else {}
    return {"tools": tools, **more}


def text(words, **more):
    return {"content": [{"type": "text", "text": words}], **more}


def call(name, arguments, meta):
    if name == "die":
        print("goodbye cruel world", file=sys.stderr, flush=True)
        os._exit(3)
    if name == "hang":
        CANCELLED.wait(60)
        with open(SETUP["mark"], "w") as file:
            file.write("cancelled")
        return None
    if name == "child":
        return text(f"{subprocess.Popen(['sleep', '300']).pid} {os.getpid()}")
    if name == "pid":
        return text(str(os.getpid()))
    if name == "progress":
        for n in range(3000):
            message = {"progressToken": meta["progressToken"], "progress": n, "message": "x\x1b[2J" * 400}
            send({"method": "notifications/progress", "params": message})
        return text("done")
    if name == "grow":
        SETUP["tools"] = [tool for tool in SETUP["tools"] if tool["name"] != "die"] + SETUP["later"]
        for _ in range(1000):
            send({"method": "notifications/tools/list_changed"})
        return text("grown")
    if name == "long line":
        sys.stdout.write('{"jsonrpc": "2.0", "x": "' + "x" * (17 << 20))
        sys.stdout.flush()
        time.sleep(30)
    if name == "answer":
        return arguments["result"]
    if name == "stubborn":
        import signal

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        SETUP["stubborn"] = True
        return text(str(os.getpid()))
    return text(f"{name} {json.dumps(arguments)}")


def answer(message):
    method, params = message.get("method"), message.get("params") or {}
    if method == "initialize":
        info = {"name": "raw", "version": "1"}
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {"listChanged": True}}, "serverInfo": info}
    elif method == "tools/list":
        result = listed(params)
    elif method == "tools/call":
        result = call(params["name"], params.get("arguments"), params.get("_meta") or {})
    else:
        return send({"id": message["id"], "error": {"code": -32601, "message": f"no {method}"}})
    return None if result is None else send({"id": message["id"], "result": result})


def main():
    sys.stdout.write(SETUP.get("first", ""))
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("method") == "notifications/cancelled":
            CANCELLED.set()
        elif "id" in message:
            threading.Thread(target=answer, args=(message,), daemon=True).start()
    while SETUP.get("stubborn"):
        time.sleep(1)
    os._exit(0)


main()
