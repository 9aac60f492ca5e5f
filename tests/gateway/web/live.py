"""A whole server with an HTTP port, on a real socket."""

import http.client
import json
import threading

from tests.stomp.test_live import StompTown, free_port


class HttpTown(StompTown):
    def __init__(self, folder, **settings):
        self.port = free_port()
        super().__init__(folder, **{"http": f"127.0.0.1:{self.port}", **settings})

    def do(self, work):
        """Do the client's part in a thread while the reactor turns; what it returns."""
        result = []

        def guarded():
            try:
                result.append(work())
            except BaseException as error:
                result.append(error)

        thread = threading.Thread(target=guarded, daemon=True)
        thread.start()
        self.until(lambda: result)
        thread.join()
        if isinstance(result[0], BaseException):
            raise result[0]
        return result[0]

    def get(self, *targets, context=None, port=None, changes=None, **headers):
        """(status, body) of each, over one connection; `changes`: these arguments are sent there."""
        method, body = ("GET", None) if changes is None else ("POST", json.dumps(changes))
        headers |= {"Content_Type": "application/json"} if body else {}

        def work():
            kind = http.client.HTTPSConnection if context else http.client.HTTPConnection
            conn = kind("localhost", port or self.port, timeout=60, **({"context": context} if context else {}))
            found = []
            for target in targets:
                conn.request(
                    method, target, body, headers={name.replace("_", "-"): each for name, each in headers.items()}
                )
                answer = conn.getresponse()
                found.append((answer.status, answer.read().decode()))
            conn.close()
            return found

        return self.do(work)
