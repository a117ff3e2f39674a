"""Nodes and emulated pods in virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from controlplane.sandbox.clock import ManualClock
from controlplane.sandbox.controllers.pods import condition_of, is_ready
from controlplane.sandbox.emulator import fleet
from controlplane.sandbox.emulator.environment import ConfigMissing, environment, expand
from controlplane.sandbox.errors import BadRequest, Conflict
from controlplane.sandbox.journal import Journal
from controlplane.sandbox.kinds import CONFIGMAP, LEASE, NODE, POD, SECRET
from controlplane.sandbox.objects import meta, name_of
from controlplane.sandbox.store import Store
from tests.unit.sandbox.builders import GPU, make_container, make_pod, running_cluster

ANNOTATION = "sandbox.concertina.dev"


def state_of(pod: dict[str, Any]) -> str:
    """What kubectl shows in STATUS, in short."""
    [container] = pod["status"].get("containerStatuses") or [{"state": {}}]
    state = container["state"]
    reason = (state.get("waiting") or state.get("terminated") or {}).get("reason", "")
    return f"{pod['status']['phase']} {reason}".strip()


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("main=2x8", [("main-0", GPU, 8), ("main-1", GPU, 8)]),
        ("local=1x1", [("local-0", "concertina.dev/cpu-device", 1)]),
        ("a=1x2,b=1x0", [("a-0", GPU, 2), ("b-0", GPU, 0)]),
    ],
)
def test_fleet(text: str, want: list[tuple[str, str, int]]) -> None:
    pools = fleet.parse(text)
    got = [(name, pool.resource, pool.devices) for pool in pools for name in pool.node_names()]
    assert got == want


def test_demo_fleet() -> None:
    names = [name for pool in fleet.parse("demo") for name in pool.node_names()]
    assert len(names) == 36
    assert (names[0], names[31], names[32], names[35]) == (
        "main-00", "main-31", "local-0", "local-3",
    )  # fmt: skip


@pytest.mark.parametrize("text", ["", "demo2", "main=8", "main=ax8", "a=1x1,a=1x1", "A=1x1"])
def test_fleet_that_makes_no_sense(text: str) -> None:
    with pytest.raises(ValueError, match="--nodes"):
        fleet.parse(text)


async def test_node_boots_then_its_devices(tmp_path: Path) -> None:
    """autoscaler 7956: Ready before the device plugin is there."""
    async with running_cluster(tmp_path, "main=1x8", boot=False) as cluster:
        await cluster.settle()
        node = cluster.store.get(NODE, None, "main-0")
        assert condition_of(node, "Ready")["status"] == "False"
        cluster.create(POD, make_pod("p", 8))
        await cluster.advance(0.75)
        node = cluster.store.get(NODE, None, "main-0")
        assert condition_of(node, "Ready")["status"] == "True"
        assert GPU not in node["status"]["allocatable"]
        assert node["metadata"]["labels"]["nvidia.com/gpu.count"] == "8"
        assert "taints" not in node["spec"]
        assert cluster.nodes_of(cluster.pods()) == [""]
        await cluster.advance(1.5)
        assert cluster.store.get(NODE, None, "main-0")["status"]["allocatable"][GPU] == "8"
        assert cluster.nodes_of(cluster.pods()) == ["main-0"]


async def test_heartbeats(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, "main=1x8") as cluster:
        before = cluster.store.get(LEASE, "kube-node-lease", "main-0")["spec"]["renewTime"]
        await cluster.advance(60.0)
        after = cluster.store.get(LEASE, "kube-node-lease", "main-0")["spec"]["renewTime"]
        assert after > before
        assert condition_of(cluster.store.get(NODE, None, "main-0"), "Ready")["status"] == "True"


@pytest.mark.parametrize(
    ("state", "seconds", "want", "taint"),
    [
        ("not-ready", 0.5, "False", "node.kubernetes.io/not-ready"),
        ("unreachable", 60.0, "Unknown", "node.kubernetes.io/unreachable"),
    ],
)
async def test_node_goes_and_comes_back(
    tmp_path: Path, state: str, seconds: float, want: str, taint: str
) -> None:
    async with running_cluster(tmp_path, "main=1x8") as cluster:
        cluster.create(POD, make_pod("p", 8))
        await cluster.advance(1.5)
        note = f"{ANNOTATION}/node"
        cluster.change(NODE, "main-0", lambda n: n["metadata"]["annotations"].update({note: state}))
        await cluster.advance(seconds, step=1.0)
        node = cluster.store.get(NODE, None, "main-0")
        assert condition_of(node, "Ready")["status"] == want
        assert {t["key"] for t in node["spec"]["taints"]} == {taint}
        assert not is_ready(cluster.get(POD, "p"))
        cluster.change(NODE, "main-0", lambda n: n["metadata"]["annotations"].pop(note))
        await cluster.advance(1.0)
        node = cluster.store.get(NODE, None, "main-0")
        assert condition_of(node, "Ready")["status"] == "True"
        assert "taints" not in node["spec"]
        assert is_ready(cluster.get(POD, "p"))


async def test_pods_leave_a_lost_node_after_their_toleration(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, "main=1x8") as cluster:
        key = {"key": "node.kubernetes.io/not-ready", "operator": "Exists"}
        brief = {**key, "effect": "NoExecute", "tolerationSeconds": 5}
        cluster.create(POD, make_pod("brief", tolerations=[brief]))
        cluster.create(POD, make_pod("patient"))
        await cluster.advance(1.5)
        edit = {f"{ANNOTATION}/node": "not-ready"}
        cluster.change(NODE, "main-0", lambda n: n["metadata"]["annotations"].update(edit))
        await cluster.advance(10.0)
        assert [name_of(pod) for pod in cluster.pods()] == ["patient"]
        await cluster.advance(310.0, step=10.0)
        assert cluster.pods() == []


async def test_life_of_a_pod(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        cluster.create(POD, make_pod("p", 8))
        await cluster.settle()
        assert state_of(cluster.get(POD, "p")) == "Pending ContainerCreating"
        await cluster.advance(1.0)
        pod = cluster.get(POD, "p")
        assert state_of(pod) == "Running"
        assert is_ready(pod)
        cluster.store.delete(POD, "default", "p")
        await cluster.advance(0.75)
        pod = cluster.get(POD, "p")
        assert state_of(pod) == "Running", "terminating pods still hold what they hold"
        assert meta(pod)["deletionTimestamp"]
        await cluster.advance(0.5)
        assert cluster.pods() == []


@pytest.mark.parametrize(
    ("annotations", "spec", "seconds", "want"),
    [
        ({"exit-after": "2"}, {"restartPolicy": "Never"}, 2.75, "Running"),
        ({"exit-after": "2"}, {"restartPolicy": "Never"}, 3.25, "Succeeded Completed"),
        ({"exit-after": "2", "exit-code": "3"}, {"restartPolicy": "Never"}, 4, "Failed Error"),
        ({"exit-after": "2"}, {"restartPolicy": "OnFailure"}, 4, "Succeeded Completed"),
        ({"exit-after": "2"}, {"restartPolicy": "Always"}, 3.5, "Running CrashLoopBackOff"),
        ({"exit-after": "2"}, {"restartPolicy": "Always"}, 4.5, "Running"),
        ({"boot-seconds": "5"}, {}, 4.5, "Pending ContainerCreating"),
        ({"boot-seconds": "5"}, {}, 5.5, "Running"),
        ({"exit-after": "soon"}, {}, 2, "Pending CreateContainerConfigError"),
    ],
)
async def test_what_annotations_do(
    tmp_path: Path,
    annotations: dict[str, str],
    spec: dict[str, Any],
    seconds: float,
    want: str,
) -> None:
    async with running_cluster(tmp_path) as cluster:
        notes = {f"{ANNOTATION}/{key}": value for key, value in annotations.items()}
        cluster.create(POD, make_pod("p", annotations=notes, **spec))
        await cluster.advance(seconds)
        assert state_of(cluster.get(POD, "p")) == want


@pytest.mark.parametrize(
    ("stop", "grace", "gone_after"),
    [("3", 30, 3.0), ("10", 2, 2.0), ("0", 30, 0.0)],
)
async def test_time_to_end(tmp_path: Path, stop: str, grace: int, gone_after: float) -> None:
    async with running_cluster(tmp_path) as cluster:
        notes = {f"{ANNOTATION}/stop-seconds": stop}
        cluster.create(POD, make_pod("p", annotations=notes, terminationGracePeriodSeconds=grace))
        await cluster.advance(1.5)
        cluster.store.delete(POD, "default", "p")
        if gone_after:
            await cluster.advance(gone_after - 0.25)
            assert len(cluster.pods()) == 1
        await cluster.advance(0.5)
        assert cluster.pods() == []


async def test_waits_for_its_secret(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        source = [{"secretRef": {"name": "job-concertina"}}]
        cluster.create(POD, make_pod("p", containers=[make_container(envFrom=source)]))
        await cluster.advance(5.0)
        pod = cluster.get(POD, "p")
        assert state_of(pod) == "Pending CreateContainerConfigError"
        [container] = pod["status"]["containerStatuses"]
        assert container["state"]["waiting"]["message"] == 'secret "job-concertina" not found'
        metadata = {"name": "job-concertina", "namespace": "default"}
        cluster.create(SECRET, {"metadata": metadata, "stringData": {"A": "b"}})
        await cluster.settle()
        assert state_of(cluster.get(POD, "p")) == "Running"


@pytest.mark.parametrize(
    ("policy", "signal", "want"),
    [
        ("Never", "KILL", "Failed Error"),
        ("Always", "KILL", "Failed Error"),
        ("Always", "TERM", "Running CrashLoopBackOff"),
    ],
)
async def test_signals(tmp_path: Path, policy: str, signal: str, want: str) -> None:
    async with running_cluster(tmp_path) as cluster:
        cluster.create(POD, make_pod("p", restartPolicy=policy))
        await cluster.advance(1.5)
        send = cluster.store.hooks.send_signal
        assert send is not None
        with pytest.raises(BadRequest, match="USR1"):
            send(cluster.get(POD, "p"), "USR1")
        send(cluster.get(POD, "p"), signal)
        await cluster.settle()
        assert state_of(cluster.get(POD, "p")) == want
        if want.startswith("Failed"):
            with pytest.raises(Conflict, match="no running container"):
                send(cluster.get(POD, "p"), "KILL")


async def test_emulated_pods_go_on_over_a_restart(tmp_path: Path) -> None:
    clock = ManualClock()
    store = Store(clock=clock, journal=Journal(tmp_path / "data"))
    notes = {f"{ANNOTATION}/exit-after": "20"}
    async with running_cluster(tmp_path, store=store) as cluster:
        cluster.create(POD, make_pod("p", annotations=notes, restartPolicy="Never"))
        await cluster.advance(5.0)
        started = cluster.get(POD, "p")["status"]["containerStatuses"]
    store.close()
    store = Store(clock=clock, journal=Journal(tmp_path / "data"))
    async with running_cluster(tmp_path, store=store, boot=False) as cluster:
        await cluster.advance(10.0)
        assert cluster.get(POD, "p")["status"]["containerStatuses"] == started
        await cluster.advance(10.0)
        assert state_of(cluster.get(POD, "p")) == "Succeeded Completed"
    store.close()


def test_environment_of_a_container() -> None:
    store = Store(clock=ManualClock())
    secret = {"metadata": {"name": "s", "namespace": "default"}, "stringData": {"TOKEN": "t"}}
    store.create(SECRET, secret)
    store.create(CONFIGMAP, {"metadata": {"name": "c", "namespace": "default"}, "data": {"A": "1"}})
    container = make_container(
        envFrom=[
            {"secretRef": {"name": "s"}},
            {"configMapRef": {"name": "c"}, "prefix": "C_"},
            {"secretRef": {"name": "absent", "optional": True}},
        ],
        env=[
            {"name": "B", "value": "$(C_A)-$(TOKEN)-$(UNKNOWN)-$$(B)"},
            {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {
                "name": "INDEX",
                "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['i/x']"}},
            },
            {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "TOKEN"}}},
            {
                "name": "NONE",
                "valueFrom": {"secretKeyRef": {"name": "s", "key": "no", "optional": True}},
            },
        ],
    )
    pod = make_pod("p", annotations={"i/x": "3"}, containers=[container])
    assert environment(store, pod, container) == {
        "TOKEN": "t",
        "C_A": "1",
        "B": "1-t-$(UNKNOWN)-$(B)",
        "NAME": "p",
        "INDEX": "3",
        "KEY": "t",
    }
    missing = {"name": "X", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "no"}}}
    with pytest.raises(ConfigMissing, match="couldn't find key no in ConfigMap default/c"):
        environment(store, pod, make_container(env=[missing]))
    assert expand("$(A)$(A)", {"A": "x"}) == "xx"
