"""Quantities, selectors, decoding, durations: tables."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from controlplane.sandbox.clock import parse_rfc3339, rfc3339, rfc3339_micro
from controlplane.sandbox.errors import BadRequest
from controlplane.sandbox.kinds import JOB, NODE, POD, KindInfo
from controlplane.sandbox.schema import quantity
from controlplane.sandbox.schema.decode import decode
from controlplane.sandbox.selectors import FieldSelector, LabelSelector
from controlplane.sandbox.tables import human_duration


@pytest.mark.parametrize(
    ("text", "value", "want"),
    [
        ("8", "8", "8"),
        ("0", "0", "0"),
        ("0.5", "0.5", "500m"),
        ("1000m", "1", "1"),
        ("1500m", "1.5", "1500m"),
        ("2000", "2000", "2k"),
        ("2048", "2048", "2048"),
        ("1024Mi", "1073741824", "1Gi"),
        ("1500Mi", "1572864000", "1500Mi"),
        ("1.5Gi", "1610612736", "1536Mi"),
        ("0.5Ki", "512", "512"),
        ("1e3", "1000", "1e3"),
        ("12E6", "12000000", "12e6"),
        ("1n", "0.000000001", "1n"),
        ("-3", "-3", "-3"),
    ],
)
def test_quantity(text: str, value: str, want: str) -> None:
    assert quantity.parse(text) == Decimal(value)
    assert quantity.canonical(text) == want


@pytest.mark.parametrize("text", ["", "x", "1.2.3", "8 Gi", "1Xi", "Gi", "1e"])
def test_not_a_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        quantity.parse(text)


@pytest.mark.parametrize(
    ("text", "labels", "want"),
    [
        ("", {}, True),
        ("a=b", {"a": "b"}, True),
        ("a=b", {"a": "c"}, False),
        ("a!=b", {}, True),
        ("a in (b, c),!d", {"a": "c"}, True),
        ("a in (b),!d", {"a": "b", "d": ""}, False),
        ("a notin (b)", {"a": "b"}, False),
        ("x.y/z-1=", {"x.y/z-1": ""}, True),
        ("n>3", {"n": "4"}, True),
        ("n<3", {"n": "4"}, False),
        ("n>3", {"n": "x"}, False),
    ],
)
def test_label_selector(text: str, labels: dict[str, str], want: bool) -> None:
    assert LabelSelector.parse(text).matches(labels) is want


@pytest.mark.parametrize(
    ("selector", "labels", "want"),
    [
        (None, {"a": "b"}, False),
        ({}, {"a": "b"}, True),
        ({"matchLabels": {"a": "b"}}, {"a": "b"}, True),
        ({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}, {"a": "b"}, False),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}, {"a": "b"}, True),
    ],
)
def test_selector_object(selector: Any, labels: dict[str, str], want: bool) -> None:
    assert LabelSelector.of(selector).matches(labels) is want


@pytest.mark.parametrize("text", ["a in b", "=a", "a b", "a in (b", "-a=b"])
def test_bad_label_selector_names_what_it_read(text: str) -> None:
    with pytest.raises(BadRequest, match="unable to parse requirement"):
        LabelSelector.parse(text)


@pytest.mark.parametrize(
    ("kind", "text", "obj", "want"),
    [
        (POD, "spec.nodeName=n", {"spec": {"nodeName": "n"}}, True),
        (POD, "spec.nodeName=", {"spec": {}}, True),
        (POD, "status.phase!=Failed,metadata.name=a", {"metadata": {"name": "a"}}, True),
        (NODE, "spec.unschedulable=true", {"spec": {"unschedulable": True}}, True),
        (NODE, "spec.unschedulable=false", {"spec": {}}, True),
        (JOB, "status.successful=0", {"status": {}}, True),
    ],
)
def test_field_selector(kind: KindInfo, text: str, obj: Any, want: bool) -> None:
    assert FieldSelector.parse(text, kind).matches(obj) is want


def test_field_selector_names_what_a_kind_supports() -> None:
    with pytest.raises(BadRequest, match=r"not supported: spec.x \(supported: .*spec.nodeName"):
        FieldSelector.parse("spec.x=1", POD)
    with pytest.raises(BadRequest, match="not supported"):
        FieldSelector.parse("metadata.namespace=a", NODE)


def pod(**spec: Any) -> Any:
    return {"metadata": {"name": "p"}, "spec": spec}


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({"priority": 5, "nodeName": None}, {"priority": 5}),
        ({"nodeSelector": {}}, {}),
        ({"tolerations": []}, {}),
        ({"securityContext": {}}, {"securityContext": {}}),
        ({"overhead": {"cpu": 0.25}}, {"overhead": {"cpu": "250m"}}),
        ({"unknownField": 1}, {}),
        ({"priority": 5.0}, {"priority": 5}),
    ],
)
def test_decode_holds_what_go_would(spec: Any, want: Any) -> None:
    assert decode("Pod", pod(**spec))[0]["spec"] == want


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"priority": "5"}, "cannot unmarshal string into Go struct field Pod.spec.priority"),
        ({"priority": True}, "cannot unmarshal bool"),
        ({"containers": {}}, r"cannot unmarshal object into Go struct field Pod.spec.containers"),
        ({"nodeSelector": {"a": 1}}, "cannot unmarshal number"),
        ({"overhead": {"cpu": "lots"}}, "'lots' is not a quantity"),
        ("text", "cannot unmarshal string"),
    ],
)
def test_decode_names_the_field(spec: Any, message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        decode("Pod", {"metadata": {"name": "p"}, "spec": spec})


def test_decode_lists_unknown_fields_with_their_place() -> None:
    _, unknown = decode("Pod", pod(containers=[{"name": "a", "imagee": "b"}], x=1))
    assert unknown == ["spec.containers[0].imagee", "spec.x"]


def test_decode_refuses_what_is_nested_without_end() -> None:
    deep: Any = {}
    for _ in range(100):
        deep = {"x": deep}
    with pytest.raises(BadRequest, match="nested deeper"):
        decode("Pod", deep)


def test_times_are_written_as_the_server_does() -> None:
    text = "2026-05-06T07:08:09.123456+02:00"
    meta = decode("Pod", {"metadata": {"creationTimestamp": text}})[0]["metadata"]
    assert meta["creationTimestamp"] == "2026-05-06T05:08:09Z"
    lease = decode("Lease", {"spec": {"renewTime": text}})[0]
    assert lease["spec"]["renewTime"] == "2026-05-06T05:08:09.123456Z"
    assert rfc3339(parse_rfc3339("2026-05-06T05:08:09Z")) == "2026-05-06T05:08:09Z"
    assert rfc3339_micro(1.5) == "1970-01-01T00:00:01.500000Z"


@pytest.mark.parametrize(
    ("seconds", "want"),
    [
        (-1, "0s"),
        (-5, "<invalid>"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (599, "9m59s"),
        (3600, "60m"),
        (10800, "3h"),
        (11000, "3h3m"),
        (86400, "24h"),
        (180000, "2d2h"),
        (86400 * 8, "8d"),
        (86400 * 800, "2y70d"),
    ],
)
def test_ages_are_printed_as_kubectl_does(seconds: float, want: str) -> None:
    assert human_duration(seconds) == want
