"""manage.py seed_demo: idempotent, and clear about a file that can't be used."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from apps.accounts.models import User
from apps.clusters.models import Cluster
from apps.core.models import AuditEntry
from apps.elasticity.models import ElasticityPolicy
from apps.priorities.models import PriorityClass

pytestmark = pytest.mark.django_db

TEXT = """
priority_classes:
  - {name: serving, value: 1000}
elasticity_policies:
  - {name: steady, min_replicas: 1, max_replicas: 4}
"""


def seed(path: Path, text: str = TEXT) -> str:
    file, out = path / "policies.yaml", StringIO()
    file.write_text(text)
    config = path / "kubeconfig"
    call_command("seed_demo", policies=file, kubeconfig=config, stdout=out)
    return out.getvalue()


def test_twice_is_once(tmp_path: Path, settings: Any) -> None:
    settings.CONCERTINA_DEMO_PASSWORD = "breathe-in-and-out"
    assert "3 rows made" in seed(tmp_path)
    assert "0 rows made" in seed(tmp_path)
    cluster = Cluster.objects.get()
    assert (cluster.name, cluster.sandbox) == ("sandbox", True)
    assert cluster.kubeconfig_path == str(tmp_path / "kubeconfig")
    assert (ElasticityPolicy.objects.count(), PriorityClass.objects.count()) == (1, 1)
    user = User.objects.get()
    assert user.check_password("breathe-in-and-out")
    assert (user.is_staff, user.is_superuser) == (True, False)
    assert user.has_perm("training.inject_fault")
    assert user.has_perm("elasticity.change_elasticitypolicy")
    assert not user.has_perm("accounts.add_user")
    assert AuditEntry.objects.count() == 4


def test_what_somebody_changed_stays(tmp_path: Path) -> None:
    seed(tmp_path)
    ElasticityPolicy.objects.update(max_replicas=9)
    seed(tmp_path)
    assert ElasticityPolicy.objects.get().max_replicas == 9


def test_a_password_is_made_and_shown_where_none_is_given(tmp_path: Path, settings: Any) -> None:
    settings.CONCERTINA_DEMO_PASSWORD = ""
    password = seed(tmp_path).rsplit(" ", 1)[1].strip()
    assert User.objects.get().check_password(password)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "can't be read"),
        ("[]", "must be a mapping"),
        ("teams: []", "must be a mapping with elasticity_policies and priority_classes"),
        ("elasticity_policies: [{name: x, min_replicas: 5, max_replicas: 4}]", "max_replicas"),
    ],
)
def test_a_file_that_cant_be_used_leaves_nothing(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(CommandError, match=said):
        seed(tmp_path, text)
    assert not Cluster.objects.exists()
    assert not User.objects.exists()


def test_the_demos_own_file() -> None:
    from apps.elasticity.management.commands.seed_demo import POLICIES, read, seed_policies

    document = read(POLICIES)
    assert seed_policies(document) == sum(len(rows) for rows in document.values())
