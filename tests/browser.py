"""A real browser for tests: headless Chromium, controlled through a pipe by its DevTools protocol."""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
DRAWN = "document.documentElement?.dataset.ready === 'yes'"
"""True in a page whose script says that everything is drawn."""
SECONDS = 120.0  # for a machine that is busy with something else
AS_3_AND_4 = """import fcntl, os, sys
ends = [fcntl.fcntl(int(one), fcntl.F_DUPFD, 10) for one in sys.argv[1:3]]
for number, end in zip((3, 4), ends):
    os.dup2(end, number)
os.execv(sys.argv[3], sys.argv[3:])
"""  # where the browser looks for its pipe
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-default-apps", "--disable-extensions",
    "--disable-sync", "--mute-audio", "--force-color-profile=srgb", "--host-resolver-rules=MAP * ~NOTFOUND",
    "--disable-renderer-backgrounding", "--disable-backgrounding-occluded-windows", "--remote-debugging-pipe",
)  # fmt: skip


def installed() -> str | None:
    """Return the path of the browser, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """A browser without a window. Everything waits for an answer, for `SECONDS` at most."""

    def __init__(self, program: str, folder: Path) -> None:
        commands, self._write = os.pipe()
        self._read, answers = os.pipe()
        self._log = (folder / "browser.log").open("wb")
        words = [program, *FLAGS, f"--user-data-dir={folder / 'profile'}", "about:blank"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", AS_3_AND_4, str(commands), str(answers), *words],
            pass_fds=(commands, answers), stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log,
            env={**os.environ, "HOME": str(folder)},
        )  # fmt: skip
        os.close(commands)
        os.close(answers)
        self._numbers = itertools.count(1)
        self._rest = b""
        self.events: deque[dict[str, Any]] = deque()
        try:
            self.version = self.tell("Browser.getVersion")["product"]
        except (OSError, RuntimeError, TimeoutError) as error:
            self.close()
            said = (folder / "browser.log").read_text(encoding="utf-8", errors="replace")
            raise RuntimeError(f"{program} does not start: {error}; it said: {said[-2000:]}") from error

    def tell(self, method: str, session: str | None = None, **params: Any) -> Any:
        """Send a command and wait for its result; events that come at the same time are stored."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params} | ({"sessionId": session} if session else {})
        self._send(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive(f"an answer to {method}")
            if answer.get("id") != number:
                self.events.append(answer)
            elif "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']}")
            else:
                return answer["result"]

    def _send(self, message: bytes) -> None:
        while message:
            message = message[os.write(self._write, message[:32768]) :]

    def _receive(self, what: str) -> dict[str, Any]:
        end = time.monotonic() + SECONDS
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise TimeoutError(f"the browser did not give {what} in {SECONDS:g} seconds")
            more = os.read(self._read, 1 << 20)
            if not more:
                raise RuntimeError("the browser has ended")
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\0")
        result: dict[str, Any] = json.loads(line)
        return result

    def open(
        self,
        file: Path,
        width: int = 1400,
        height: int = 900,
        dark: bool = False,
        ready: str = DRAWN,
        scale: float = 1,
        phone: bool = False,
    ) -> Page:
        """A page with a file in it, once the expression `ready` is true in it.

        `scale` is the number of pixels of a screenshot for one of the page, along each side.
        """
        target = self.tell("Target.createTarget", url="about:blank")["targetId"]
        session = self.tell("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, target, session)
        page.tell("Page.bringToFront")  # a hidden page is not drawn
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        page.tell("Emulation.setEmulatedMedia", features=scheme)
        page.tell(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=phone
        )
        page.tell("Page.navigate", url=file.as_uri())
        page.wait_for(ready)
        page.settle()
        return page

    def close(self) -> None:
        """End it."""
        try:
            self.tell("Browser.close")
            self._process.wait(300)
        except (OSError, RuntimeError, TimeoutError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        for end in (self._read, self._write):
            os.close(end)
        self._log.close()


class Page:
    """One page, with what went wrong on it and what it asked for."""

    def __init__(self, browser: Browser, target: str, session: str) -> None:
        self._browser, self._target, self._session = browser, target, session
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.tell(f"{domain}.enable")

    def tell(self, method: str, **params: Any) -> Any:
        """Send a command for this page."""
        return self._browser.tell(method, self._session, **params)

    def evaluate(self, expression: str) -> Any:
        """What an expression in JavaScript gives; promises are waited for."""
        result = self.tell("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"].get("exception", {}).get("description", result))
        return result["result"].get("value")

    def wait_for(self, expression: str) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + SECONDS
        while not self._is_true(expression):
            if time.monotonic() > end:
                raise TimeoutError(f"it did not become true: {expression}")
            time.sleep(0.05)

    def _is_true(self, expression: str) -> bool:
        try:
            return bool(self.evaluate(expression))
        except RuntimeError as error:
            if "context" in str(error):  # the page that was there before is just going
                return False
            raise

    def settle(self) -> None:
        """Wait until what was asked for is drawn."""
        self.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")

    def text(self, selector: str) -> str:
        """The text that can be seen in an element."""
        return str(self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText"))

    def click(self, selector: str, times: int = 1) -> None:
        """Press the mouse in the middle of an element, as a user does."""
        quoted = json.dumps(selector)
        self.evaluate(f"document.querySelector({quoted}).scrollIntoView({{block: 'nearest'}})")
        x, y = self.evaluate(
            f"(() => {{ const box = document.querySelector({quoted}).getBoundingClientRect();"
            " return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        for count in range(1, times + 1):
            for kind in ("mousePressed", "mouseReleased"):
                self.tell("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=count)
        self.settle()

    def write(self, text: str) -> None:
        """Type a text into what has the focus."""
        self.tell("Input.insertText", text=text)
        self.settle()

    def press(self, key: str, code: int = 0, text: str = "") -> None:
        """Press a key, by its name."""
        for kind in ("keyDown", "keyUp"):
            more = {"text": text} if text and kind == "keyDown" else {}
            self.tell("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **more)
        self.settle()

    def screenshot(self, path: Path) -> bytes:
        """A picture of what is in sight, which is written to a file too."""
        content = base64.b64decode(self.tell("Page.captureScreenshot", format="png")["data"])
        path.write_bytes(content)
        return content

    @property
    def problems(self) -> list[str]:
        """What the page threw, or what the console has errors and warnings of."""
        self.evaluate("new Promise((done) => setTimeout(() => done(true), 20))")  # wait for late reports
        result = []
        for event in self._mine():
            params = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                result.append(str(params["exceptionDetails"]))
            elif event["method"] == "Runtime.consoleAPICalled" and params["type"] in {"error", "warning", "assert"}:
                result.append(str(params["args"]))
            elif event["method"] == "Log.entryAdded" and params["entry"]["level"] in {"error", "warning"}:
                result.append(params["entry"]["text"])
        return result

    @property
    def requests(self) -> list[str]:
        """The addresses that the page asked for."""
        return [
            item["params"]["request"]["url"] for item in self._mine() if item["method"] == "Network.requestWillBeSent"
        ]

    def _mine(self) -> list[dict[str, Any]]:
        return [event for event in self._browser.events if event.get("sessionId") == self._session]

    def close(self) -> None:
        """Close it."""
        self._browser.tell("Target.closeTarget", targetId=self._target)
