"""A headless browser for tests, driven over a pipe by the Chrome DevTools Protocol."""

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import time
from pathlib import Path

BROWSERS = (
    *("chromium", "chromium-browser", "chromium-headless-shell", "google-chrome", "google-chrome-stable", "chrome"),
)
PLAYWRIGHT = Path.home() / ".cache" / "ms-playwright"
OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)
_TIMEOUT_SECONDS = 60
_CONTROL = 2  # as a modifier of a key
_KEYS = {"Tab": 9, "Enter": 13, "ArrowRight": 39, "ArrowDown": 40, "Escape": 27, " ": 32}


def installed_browsers():
    """Yields the paths of browsers based on Chromium."""
    yield from filter(None, map(shutil.which, BROWSERS))
    yield from map(str, PLAYWRIGHT.glob("chromium-*/chrome-linux*/chrome"))


class Browser:
    """A running browser with one page."""

    def __init__(self, program, profile):
        read, self._write = _pipe()
        self._read, write = _pipe()
        # The browser reads commands from descriptor 3 and writes to 4.
        actions = [(os.POSIX_SPAWN_DUP2, read, 3), (os.POSIX_SPAWN_DUP2, write, 4)]
        actions.append((os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0))
        command = [program, *OPTIONS, f"--user-data-dir={profile}", "--remote-debugging-pipe"]
        self._process = os.posix_spawn(program, command, os.environ, file_actions=actions)
        os.close(read)
        os.close(write)
        self._buffer, self._number, self._session, self._events = b"", 0, None, []
        self._attach(self.call("Target.createTarget", url="about:blank")["targetId"])

    def close(self):
        os.kill(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)
        os.close(self._read)
        os.close(self._write)

    def call(self, method, **parameters):
        """Sends a command and returns its result; events that come first are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self._events.append(answer)

    def open(self, url, width=1280, height=900):
        """Loads a page and forgets the events of earlier ones."""
        self._events.clear()
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Page.navigate", url=url)

    def open_tab(self):
        """Follows a link or form that opened a new tab."""
        self._session = None
        pages = [each for each in self.call("Target.getTargets")["targetInfos"] if each["type"] == "page"]
        self._attach(next(page["targetId"] for page in pages if page["targetId"] != self._target))

    def evaluate(self, expression):
        """Returns the value of a JavaScript expression, after it is resolved."""
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait(self, condition):
        """Waits until a JavaScript expression is true; an error counts as false, because the page may be loading."""
        until = time.monotonic() + _TIMEOUT_SECONDS
        expression = f"(() => {{ try {{ return Boolean({condition}); }} catch {{ return false; }} }})()"
        while not self.evaluate(expression):
            if time.monotonic() > until:
                raise TimeoutError(f"not true within {_TIMEOUT_SECONDS} seconds: {condition}")
            time.sleep(0.02)

    def type(self, text):
        """Inserts a text into the focused field, in place of what it holds."""
        self.evaluate("document.activeElement.select()")
        self.call("Input.insertText", text=text)

    def press(self, key, control=False):
        """Presses and releases a key."""
        event = {"key": key, "code": key, "windowsVirtualKeyCode": _KEYS[key], "modifiers": _CONTROL if control else 0}
        if key in ("Enter", " ") and not control:
            event["text"] = "\r" if key == "Enter" else key
        self.call("Input.dispatchKeyEvent", type="keyDown", **event)
        self.call("Input.dispatchKeyEvent", type="keyUp", **{**event, "text": ""})

    def requests(self):
        """Returns the addresses that were requested since `open`."""
        self.evaluate("1")
        return [
            each["params"]["request"]["url"] for each in self._events if each["method"] == "Network.requestWillBeSent"
        ]

    def errors(self):
        """Returns what was logged to the console since `open`, other than responses with an error status."""
        entries = [parameters["entry"] for parameters in self._events_of("Log.entryAdded")]
        logged = [*self._events_of("Runtime.exceptionThrown"), *self._events_of("Runtime.consoleAPICalled")]
        return logged + [entry["text"] for entry in entries if entry["source"] != "network"]

    def screenshot(self, path):
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def _events_of(self, method):
        self.evaluate("1")  # its answer comes after the events of earlier commands
        return [event["params"] for event in self._events if event["method"] == method]

    def _attach(self, target):
        self._target = target
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def _receive(self):
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], _TIMEOUT_SECONDS)
            content = os.read(self._read, 2**16) if ready else b""
            if not content:
                raise TimeoutError("the browser does not answer")
            self._buffer += content
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)


def _pipe():
    """Returns a pipe whose descriptors are above those that the browser uses."""
    low = os.pipe()
    high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10) for descriptor in low]
    for descriptor in low:
        os.close(descriptor)
    return high
