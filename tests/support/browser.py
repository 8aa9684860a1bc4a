"""A headless Chromium, driven over its debugging pipe: no library, no port."""

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_browser():
    """Path of a Chromium on this machine, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page. `evaluate` returns the value of an expression in it."""

    def __init__(self, url, *, scheme="light", size=(1280, 1500)):
        self._profile = tempfile.mkdtemp(prefix="browser-")
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()
        command = [
            *(find_browser(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
            *("--remote-debugging-pipe", f"--user-data-dir={self._profile}", "--no-first-run", "--hide-scrollbars"),
            f"--window-size={size[0]},{size[1]}",
        ]
        line = f'exec "$@" 3<&{to_read} 4>&{to_write} {to_read}<&- {to_write}>&-'
        self._process = subprocess.Popen(
            ["/bin/bash", "-c", line, "browser", *command, "about:blank"],
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._rest, self._number, self.events = b"", 0, []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Runtime", "Network", "Page", "Log"):
            self._call(f"{domain}.enable")
        self.prefer(scheme)
        self._call(
            "Emulation.setDeviceMetricsOverride", width=size[0], height=size[1], deviceScaleFactor=1, mobile=False
        )
        self._call("Page.navigate", url=url)
        self.until("location.href !== 'about:blank' && document.readyState === 'complete'")

    _session = None

    def prefer(self, scheme):
        """What the system's settings say from now on: light or dark."""
        self._call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def _call(self, method, **params):
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self.events.append(answer)

    def _read(self):
        while b"\0" not in self._rest:
            chunk = os.read(self._from, 1 << 16)
            assert chunk, "the browser has ended"
            self._rest += chunk
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def evaluate(self, expression):
        result = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def until(self, expression, timeout_s=30.0):
        """Look at an expression until it is true."""
        deadline = time.monotonic() + timeout_s
        while not (value := self.evaluate(expression)):
            assert time.monotonic() < deadline, f"never came true: {expression}"
            time.sleep(0.05)
        return value

    def press(self, key, text=""):
        """A key as from the keyboard; `text` for one that writes a character."""
        codes = {"Enter": 13, " ": 32, "ArrowUp": 38, "ArrowDown": 40, "ArrowLeft": 37, "ArrowRight": 39}
        code = codes.get(key, ord(key.upper()[0]))
        extra = {"text": text} if text else {}
        self._call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **extra)
        self._call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def requested(self):
        """Every URL that the page asked for."""
        self.evaluate("0")
        return [
            event["params"]["request"]["url"] for event in self.events if event["method"] == "Network.requestWillBeSent"
        ]

    def complaints(self):
        """Exceptions of the page's script, and what its security policy refused."""
        self.evaluate("0")
        thrown = [event["params"] for event in self.events if event["method"] == "Runtime.exceptionThrown"]
        entries = [event["params"]["entry"] for event in self.events if event["method"] == "Log.entryAdded"]
        return [*thrown, *(one for one in entries if one["source"] in ("security", "javascript"))]

    def screenshot(self):
        """The page as PNG, base64."""
        return self._call("Page.captureScreenshot", format="png")["data"]

    def close(self):
        with contextlib.suppress(Exception):
            self._session = None
            self._call("Browser.close")
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        os.close(self._to)
        os.close(self._from)
        shutil.rmtree(self._profile, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
