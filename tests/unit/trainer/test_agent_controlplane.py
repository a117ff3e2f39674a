"""The agent's line to the control plane, against a real HTTP server."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from tests.integration.trainer.agent_plane import AgentPlane
from tests.integration.trainer.job import wait_for
from trainer_runtime.agent import controlplane
from trainer_runtime.agent.controlplane import ControlPlane, Intent, Line, read_intent, signature


@pytest.fixture
def heard() -> list[Intent]:
    return []


@pytest.fixture
def plane() -> Iterator[AgentPlane]:
    with AgentPlane() as plane:
        yield plane


@pytest.fixture
def line(plane: AgentPlane, heard: list[Intent], monkeypatch) -> Iterator[ControlPlane]:
    monkeypatch.setattr(controlplane, "_BACKOFF_S", (0.01, 0.05))
    said: list[str] = []
    environment = {**plane.environment, "CONCERTINA_ATTEMPT": "7"}
    where = Line.from_env(environment, job="j", agent="a", node="n")
    assert where is not None
    line = ControlPlane(where, heard.append, said.append)
    line.said = said  # type: ignore[attr-defined]
    line.start()
    yield line
    line.close(0.2)


def test_without_url_or_token_the_agent_is_alone() -> None:
    assert Line.from_env({"CONCERTINA_URL": "x"}, job="j", agent="a", node="n") is None
    assert Line.from_env({"CONCERTINA_TOKEN": "x"}, job="j", agent="a", node="n") is None


def test_the_signature_is_of_the_canonical_json() -> None:
    # hmac.new(sha256(b"secret").digest(), b'{"a":[1,null],"b":"x"}', sha256), by openssl
    want = "3426b97436e2a13358930b6fe475670b6451579f3a2b8b208d11e46942472b04"
    assert signature("secret", {"b": "x", "a": [1, None], "signature": "any"}) == want


def test_only_the_newest_registration_is_sent_until_it_is_taken(line, plane) -> None:
    plane.codes += [503, 503]
    line.register([{"name": "r0", "ranks": 1}], None)
    line.register([{"name": "r0", "ranks": 1}, {"name": "r1", "ranks": 1}], True)
    wait_for("registered", lambda: plane.attempts and plane.attempts[-1]["elastic"])
    want = {"job": "j", "attempt": "7", "agent": "a", "node": "n", "elastic": True}
    assert want.items() <= plane.attempts[-1].items()
    assert [each["name"] for each in plane.attempts[-1]["replicas"]] == ["r0", "r1"]
    datetime.fromisoformat(plane.attempts[-1]["started_at"])


def test_an_intent_is_heard_once_and_acknowledged_again_until_taken(line, plane, heard) -> None:
    line.register([], None)
    plane.want(4, "drain", replicas=["r0"])
    wait_for("heard", lambda: heard)
    plane.codes += [500]
    line.ack(4, "accepted")
    line.ack(4, "done", detail="d")
    plane.wait_ack(4, "done")
    assert [state for _, state, _ in plane.acks] == ["accepted", "done"]
    plane.want(5, "resize", to=3)
    wait_for("both", lambda: len(heard) == 2)
    assert [(i.sequence, i.kind, i.replicas, i.to) for i in heard] == [
        (4, "drain", ("r0",), None), (5, "resize", None, 3),
    ]  # fmt: skip


def test_what_another_signed_is_refused_and_hides_nothing(line, plane, heard) -> None:
    line.register([], None)
    plane.want(1000, "drain", key="another")
    plane.wait_ack(1000, "refused", "bad_signature")
    plane.want(3, "drain")
    wait_for("the genuine one", lambda: heard)
    assert [each.sequence for each in heard] == [3]
    assert plane.acks.count((1000, "refused", "bad_signature")) == 1
    assert "intent 1000 refused: its signature isn't the control plane's" in line.said


def test_a_malformed_intent_is_refused(line, plane, heard) -> None:
    line.register([], None)
    plane.want(1, "explode")
    plane.wait_ack(1, "refused", "malformed")
    assert plane.details == ["kind: must be drain or resize (got 'explode')"]
    assert heard == []


def test_a_wrong_token_is_said_once(plane, heard, monkeypatch) -> None:
    monkeypatch.setattr(controlplane, "_BACKOFF_S", (0.01, 0.02))
    said: list[str] = []
    line = ControlPlane(Line(plane.url, "wrong", "j", "a", "n", ""), heard.append, said.append)
    line.register([], None)
    line.start()
    wait_for("refused again and again", lambda: plane.unauthorised > 3)
    line.close(0.1)
    assert said == ["control plane answered 401: {}"]


NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("deadline", "want"),
    [
        (None, None),
        ("2026-01-01T00:00:30+00:00", 30.0),
        ("2026-01-01T00:00:30Z", 30.0),
        ("2026-01-01T00:00:30", 30.0),
        ("2025-01-01T00:00:00Z", 0.0),
    ],
)
def test_deadlines(deadline: str | None, want: float | None) -> None:
    raw = {"sequence": 1, "kind": "drain", "deadline": deadline}
    assert read_intent(raw, NOW).seconds == want


@pytest.mark.parametrize(
    ("raw", "want"),
    [
        ({"kind": "resize"}, "to: must be a number of replicas (got None)"),
        ({"kind": "resize", "to": True}, "to: must be a number of replicas (got True)"),
        ({"kind": "resize", "to": -1}, "to: must be a number of replicas (got -1)"),
        ({"kind": "drain", "replicas": "r"}, "replicas: must be names or null (got 'r')"),
        ({"kind": "drain", "deadline": "soon"}, "deadline: must be an ISO 8601 time (got 'soon')"),
    ],
)
def test_what_is_wrong_is_named(raw: dict, want: str) -> None:
    with pytest.raises(ValueError) as error:
        read_intent({"sequence": 1, **raw})
    assert str(error.value) == want
