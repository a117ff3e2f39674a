"""The OpenAPI document is the committed one, and the API keeps to it under generated requests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
import yaml
from django.core.management import call_command
from django.core.signals import request_finished, request_started
from django.db import close_old_connections
from hypothesis import HealthCheck, Phase, settings
from schemathesis.config import SchemathesisConfig

from apps.accounts import actions
from controlplane.settings.environment import ROOT
from tests.rows import (
    AT,
    GPU,
    make_attempt,
    make_capacity,
    make_cluster,
    make_cohort,
    make_command,
    make_job,
    make_policy_row,
    make_queue,
    make_recovery,
    make_replica,
    make_user,
)

DOCUMENT = ROOT / "docs" / "openapi.yaml"
EXAMPLES = 8


def test_the_document_is_current(tmp_path: Path) -> None:
    made = tmp_path / "openapi.yaml"
    call_command("spectacular", "--validate", "--fail-on-warn", "--file", str(made))
    assert made.read_text() == DOCUMENT.read_text(), "run `make openapi`"


def test_every_operation_has_an_id_and_errors() -> None:
    document = yaml.safe_load(DOCUMENT.read_text())
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    ids = [operation["operationId"] for operation in operations]
    assert len(set(ids)) == len(ids) > 30
    assert all("default" in operation["responses"] for operation in operations)


def load() -> Any:
    from controlplane.wsgi import application

    document = yaml.safe_load(DOCUMENT.read_text())
    del document["paths"]["/api/v1/stream"]  # it never ends: tests of its own
    schema = schemathesis.openapi.from_dict(document, config=SchemathesisConfig())
    schema.app = application
    return schema


schema = load()


@pytest.fixture
def one_connection() -> Iterator[None]:
    """Requests share the test's transaction; Django's own test client does the same."""
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@pytest.fixture
def filled(db: None, one_connection: None) -> str:
    """Rows of every kind; returns the header of somebody who may do everything."""
    cluster = make_cluster(accounted_at=AT)
    job = make_job(cluster, policy=make_policy_row())
    make_replica(job)
    make_recovery(make_attempt(job))
    make_command(job)
    make_capacity(cluster, AT)
    make_queue(cluster, quotas={GPU: {"nominal": 8}})
    make_cohort(cluster, quotas={GPU: 8})
    user = make_user("root", staff=True)
    user.is_superuser = True
    user.save()
    return f"Token {actions.create_token(user, 'fuzz', actor=user)[1]}"


@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_the_api_keeps_to_its_document(case: Any, filled: str) -> None:
    if case.operation.definition.raw["operationId"] == "session_create":
        pytest.skip("its throttle answers first: test_session")
    response = case.call(headers={"Authorization": filled})
    case.validate_response(
        response,
        checks=[
            schemathesis.checks.not_a_server_error,
            schemathesis.checks.CHECKS.get_one("response_schema_conformance"),
            schemathesis.checks.CHECKS.get_one("content_type_conformance"),
        ],
    )
