"""The control plane's side of the agent's HTTP API, as a real server."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.integration.trainer.job import wait_for
from trainer_runtime.agent.controlplane import signature


class AgentPlane:
    """Gives intents in a long poll; keeps registrations and acknowledgements. The next requests
    are answered with `codes`, if there are any."""

    def __init__(self, token: str = "secret", *codes: int) -> None:
        self.token, self.codes = token, list(codes)
        self.attempts: list[dict[str, Any]] = []
        self.acks: list[tuple[int, str, str]] = []
        self.details: list[str] = []
        self.unauthorised = 0
        self._intents: list[dict[str, Any]] = []
        self._changed = threading.Condition()
        self._closing = False
        plane = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                query = parse_qs(urlsplit(self.path).query)
                self._answer(lambda: plane._wait(int(query["after"][0]), float(query["wait"][0])))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self._answer(lambda: plane._take(self.path, body))

            def _answer(self, work: Callable[[], dict[str, Any]]) -> None:
                code, said = 200, {}
                if self.headers["Authorization"] != f"Bearer {plane.token}":
                    plane.unauthorised += 1
                    code = 401
                elif plane.codes:
                    code = plane.codes.pop(0)
                else:
                    said = work()
                self.send_response(code)
                self.end_headers()
                self.wfile.write(json.dumps(said).encode())

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self._thread.start()

    def __enter__(self) -> AgentPlane:
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()

    @property
    def environment(self) -> dict[str, str]:
        return {"CONCERTINA_URL": self.url, "CONCERTINA_TOKEN": self.token}

    def want(self, sequence: int, kind: str, *, key: str = "", **values: Any) -> None:
        intent = {"sequence": sequence, "kind": kind, "replicas": None, "to": None,
                  "deadline": None, "reason": "test", **values}  # fmt: skip
        intent["signature"] = signature(key or self.token, intent)
        with self._changed:
            self._intents.append(intent)
            self._changed.notify_all()

    def wait_ack(self, sequence: int, state: str, reason: str = "") -> None:
        wait_for(
            f"{(sequence, state, reason)} among acknowledgements",
            lambda: (sequence, state, reason) in self.acks, 30,
        )  # fmt: skip

    def _wait(self, after: int, seconds: float) -> dict[str, Any]:
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._after(after), seconds)
            return {"intents": self._after(after)}

    def _after(self, after: int) -> list[dict[str, Any]]:
        return [each for each in self._intents if each["sequence"] > after]

    def _take(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if path == "/api/v1/agent/attempts/":
            self.attempts.append(body)
            return {"attempt": body["attempt"], "poll_s": 20}
        words = path.strip("/").split("/")
        assert words[:4] == ["api", "v1", "agent", "intents"]
        assert words[5] == "ack"
        self.details.append(body["detail"])
        self.acks.append((int(words[4]), body["state"], body["reason"]))
        return {}
