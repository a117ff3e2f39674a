"""A control plane's telemetry endpoint, as far as a trainer sees it."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from trainer_runtime import wire


class ControlPlane:
    """A control plane that answers with the codes it is given, then with 200."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)
        self.taken: list[wire.Envelope] = []
        self.headers: list[dict[str, str]] = []
        self.hold: threading.Event | None = None
        plane = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if plane.hold is not None:
                    plane.hold.wait(30)
                code = plane.codes.pop(0) if plane.codes else 200
                if code == 200:
                    plane.taken.append(wire.decode(body))
                    plane.headers.append(dict(self.headers) | {"path": self.path})
                self.send_response(code)
                self.end_headers()
                self.wfile.write(json.dumps({"code": code}).encode())

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()

    def close(self) -> None:
        if self.hold is not None:
            self.hold.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    @property
    def steps(self) -> list[int]:
        return [m.step for e in self.taken for m in e.messages if isinstance(m, wire.Step)]
