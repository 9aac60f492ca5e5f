"""Chromium without a window, driven by its own protocol (CDP)."""

import json
import re
import shutil
import subprocess
import time

from websocket import create_connection

PATIENCE_S = 60  # before a test gives up; nothing is measured by it
NAME = next((name for name in ("chromium", "chromium-browser", "google-chrome") if shutil.which(name)), None)
# Of the place in the address: for a moment after that has changed what is there is still of the place before.
READY = "document.querySelector('#content[aria-busy=false]')?.dataset.place === location.hash"
KEYS = {"Enter": ("Enter", 13, "\r"), "Escape": ("Escape", 27, "")}


class Browser:
    """One page. `wrong`: what the page complained about, violations of its policy too; `asked`: (method, URL); `login`:
    user and passcode that are given where one is asked for them; None: nobody is there to do so."""

    def __init__(self, folder):
        words = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", "--no-first-run"]
        self.process = subprocess.Popen(
            [NAME, *words, f"--user-data-dir={folder}", "about:blank"], stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        url = next(found[1] for line in self.process.stderr if (found := re.search(r"listening on (ws://\S+)", line)))
        self.socket = create_connection(url, PATIENCE_S, suppress_origin=True)
        self.number, self.session, self.context, self.login = 0, None, None, None
        self.wrong, self.asked = [], []
        self._page()

    def _page(self):
        """A new one, of a browser that knows nothing yet."""
        self.session = None
        if self.context is not None:
            self.do("Target.disposeBrowserContext", browserContextId=self.context)
        self.context = self.do("Target.createBrowserContext")["browserContextId"]
        target = self.do("Target.createTarget", url="about:blank", browserContextId=self.context)["targetId"]
        self.session = self.do("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.do(f"{domain}.enable")
        self.do("Fetch.enable", handleAuthRequests=True)

    def _send(self, method, **params):
        self.number += 1
        said = {"id": self.number, "method": method, "params": params}
        self.socket.send(json.dumps(said | ({"sessionId": self.session} if self.session else {})))
        return self.number

    def do(self, method, **params):
        number = self._send(method, **params)
        while True:
            found = json.loads(self.socket.recv())
            if found.get("id") == number:
                assert "error" not in found, found
                return found["result"]
            if found.get("sessionId") == self.session:
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
        elif method == "Fetch.requestPaused":
            self._send("Fetch.continueRequest", requestId=params["requestId"])
        elif method == "Fetch.authRequired":
            given, self.login = self.login, None
            answer = {"response": "CancelAuth"}
            if given is not None:
                answer = {"response": "ProvideCredentials", "username": given[0], "password": given[1]}
            self._send("Fetch.continueWithAuth", requestId=params["requestId"], authChallengeResponse=answer)

    def open(self, url, login=None):
        """Go to a page of the console, whose tests let go of nothing that it complains about."""
        self._page()
        self.wrong.clear()
        self.asked.clear()
        self.size(1280)
        self.scheme("light")
        self.login = login
        self.do("Page.navigate", url=url)
        self.until(READY)

    def show(self, place):
        """Go to a place of it; its text."""
        self.js(f"location.hash = '#/{place}'")
        self.until(f"location.hash === '#/{place}' && {READY}")
        return self.js("document.getElementById('main').innerText")

    def press(self, word, where="#content"):
        """The button with this word, once it is there."""
        found = f"[...document.querySelectorAll('{where} button')].find((each) => each.textContent === '{word}')"
        self.until(f"Boolean({found})")
        self.js(f"{found}.click()")

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
