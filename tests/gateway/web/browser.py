"""Chromium without a window, driven by its own protocol (CDP)."""

import json
import re
import shutil
import subprocess
import time

from websocket import create_connection

PATIENCE_S = 60  # before a test gives up; nothing is measured by it
NAME = next((name for name in ("chromium", "chromium-browser", "google-chrome") if shutil.which(name)), None)
KEYS = {"Enter": ("Enter", 13, "\r"), "Escape": ("Escape", 27, "")}


class Browser:
    """One page. `wrong`: what the page complained about, violations of its policy too; `asked`: (method, URL)."""

    def __init__(self, folder):
        words = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", "--no-first-run"]
        self.process = subprocess.Popen(
            [NAME, *words, f"--user-data-dir={folder}", "about:blank"], stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        url = next(found[1] for line in self.process.stderr if (found := re.search(r"listening on (ws://\S+)", line)))
        self.socket = create_connection(url, PATIENCE_S, suppress_origin=True)
        self.number, self.session, self.wrong, self.asked = 0, None, [], []
        target = self.do("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.do("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.do(f"{domain}.enable")

    def do(self, method, **params):
        self.number += 1
        said = {"id": self.number, "method": method, "params": params}
        self.socket.send(json.dumps(said | ({"sessionId": self.session} if self.session else {})))
        while True:
            found = json.loads(self.socket.recv())
            if found.get("id") == self.number:
                assert "error" not in found, found
                return found["result"]
            self._event(found.get("method"), found.get("params", {}))

    def _event(self, method, params):
        if method == "Runtime.exceptionThrown":
            self.wrong.append(params["exceptionDetails"].get("exception", {}).get("description", "an exception"))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.wrong.append(params["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.wrong.append(str(params["args"]))
        elif method == "Network.requestWillBeSent":
            self.asked.append((params["request"]["method"], params["request"]["url"]))

    def js(self, expression):
        """What an expression is worth in the page."""
        found = self.do("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def until(self, expression):
        """Wait until it holds in the page; its value."""
        end = time.monotonic() + PATIENCE_S
        while not (value := self.js(expression)):
            assert time.monotonic() < end, (expression, self.wrong, self.js("document.body.innerText"))
            time.sleep(0.02)
        return value

    def key(self, key):
        name, code, text = KEYS.get(key, (key, ord(key[0].upper()), key))
        self.do("Input.dispatchKeyEvent", type="keyDown", key=name, text=text, windowsVirtualKeyCode=code)
        self.do("Input.dispatchKeyEvent", type="keyUp", key=name, windowsVirtualKeyCode=code)

    def write(self, text):
        for each in text:
            self.key(each)

    def size(self, width, height=900):
        self.do("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def scheme(self, name):
        self.do("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def picture(self, width=1280, height=900):
        """A PNG of the page, in base64."""
        self.size(width, height)
        return self.do("Page.captureScreenshot", format="png")["data"]

    def close(self):
        self.socket.close()
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()
