"""A page in headless Chromium, driven by the DevTools protocol over pipes.

Only an installed browser is used, none is downloaded. `LLC_BROWSER` names another program.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
# Seconds to wait for an answer; generous for busy machines.
PATIENCE = 120


def browser_program() -> str | None:
    """The browser to use; None if none is installed."""
    named = os.environ.get("LLC_BROWSER")
    return named or next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """A headless browser with one page. problems: errors, violations, requests.

    origin: the only server that the page may request; '' for a page without network.
    """

    def __init__(self, origin: str = "") -> None:
        self._origin = origin
        program = str(browser_program())
        self._profile = tempfile.mkdtemp(prefix="llc-browser-")
        read_end, self._out = os.pipe()
        self._in, write_end = os.pipe()
        words = [
            *(program, "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"),
            *("--no-first-run", "--disable-extensions", "--disable-background-networking", "--mute-audio"),
            *(
                "--disable-component-update",
                "--disable-quic",
                "--disable-sync",
                "--disable-dev-shm-usage",
                f"--user-data-dir={self._profile}",
            ),
            *("--force-color-profile=srgb", "about:blank"),
        ]
        # The browser reads from descriptor 3 and writes to 4.
        command = ["bash", "-c", f'exec "$@" 3<&{read_end} 4>&{write_end}', "bash", *words]
        self._process = subprocess.Popen(
            command,
            pass_fds=(read_end, write_end),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_end)
        os.close(write_end)
        self._number = 0
        self._rest = b""
        self._session: str | None = None
        self.problems: list[str] = []
        try:
            self._open_page()
        except BaseException:
            self.close()
            raise

    def _open_page(self) -> None:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call(
            "Network.emulateNetworkConditions",
            offline=not self._origin,
            latency=0,
            downloadThroughput=-1,
            uploadThroughput=-1,
        )

    def close(self) -> None:
        with contextlib.suppress(OSError, AssertionError):  # it may have ended
            self._session = None
            self.call("Browser.close")
        self._process.kill()
        self._process.wait()
        os.close(self._out)
        os.close(self._in)
        shutil.rmtree(self._profile, ignore_errors=True)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command of the protocol; returns the answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data) :]
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result
            self._note(answer)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], PATIENCE)
            assert ready, "the browser does not answer"
            data = os.read(self._in, 1 << 20)
            assert data, "the browser has ended"
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        return found

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        match event.get("method"):
            case "Runtime.exceptionThrown":
                self.problems.append(json.dumps(params["exceptionDetails"])[:2000])
            case "Log.entryAdded":
                entry = params["entry"]
                if entry["level"] in ("error", "warning"):
                    self.problems.append(entry["text"])
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.problems.append(json.dumps(params["args"])[:2000])
            case "Network.requestWillBeSent":
                url = params["request"]["url"]
                mine = (f"{self._origin}/",) if self._origin else ("file:",)
                if not url.startswith((*mine, "blob:", "about:", "data:")):
                    self.problems.append(f"requests {url}")

    def evaluate(self, expression: str) -> Any:
        """Value of an expression on the page; a promise is awaited."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, json.dumps(answer["exceptionDetails"])[:2000]
        return answer["result"].get("value")

    def open(self, path: Path, fragment: str = "") -> None:
        """Open a file and wait until the page has shown its first step."""
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=path.absolute().as_uri() + fragment)
        self.wait(
            "document.documentElement?.dataset.ready && document.documentElement.dataset.shown !== undefined"
        )

    def wait(self, condition: str) -> None:
        """Wait until a condition holds on the page."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            with contextlib.suppress(AssertionError):  # the document may be replaced at this moment
                if self.evaluate(f"Boolean({condition})"):
                    return
            time.sleep(0.01)
        raise AssertionError(f"never: {condition}; {self.problems}")

    def resize(self, width: int, height: int = 900, scale: float = 1) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=False,
        )

    def prefer(self, scheme: str = "light", media: str = "") -> None:
        """Set the colour scheme, `light` or `dark`, and the media type, such as `print`."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media=media, features=features)

    def press(self, key: str, text: str = "") -> None:
        """Press a key by its name, or type a character."""
        codes = {
            "ArrowRight": 39,
            "ArrowLeft": 37,
            "Home": 36,
            "End": 35,
            "PageDown": 34,
            "PageUp": 33,
            "Enter": 13,
        }
        codes.update({"Tab": 9, "Escape": 27, "ArrowDown": 40, "ArrowUp": 38})
        text = "\r" if key == "Enter" else key if len(key) == 1 else text
        code = codes.get(key, ord(key.upper()) if len(key) == 1 and key.isalpha() else 0)
        common = {"key": key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def click(self, x: float, y: float) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def screenshot(self, path: Path, whole: bool = False) -> None:
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))
