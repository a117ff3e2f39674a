"""manage.py seed_demo: what the demo needs in the record. Running it again changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction
from django.utils.crypto import get_random_string

from apps.accounts import actions as accounts
from apps.clusters import actions as clusters
from apps.elasticity import actions as elasticity
from apps.elasticity.models import ElasticityPolicy
from apps.priorities import actions as priorities
from apps.priorities.models import PriorityClass

POLICIES = settings.BASE_DIR / "controlplane" / "sandbox" / "demo" / "policies.yaml"
USER = "demo"
VERBS = ("add", "change", "delete", "view")
# An operator on shift who also keeps the policies; nothing of users, tokens or clusters.
PERMISSIONS = [
    "training.inject_fault",
    *(f"elasticity.{verb}_elasticitypolicy" for verb in VERBS),
    *(f"priorities.{verb}_priorityclass" for verb in VERBS),
    "clusters.view_cluster",
    "clusters.view_node",
    "training.view_trainingjob",
    "decisions.view_plan",
    "decisions.view_decision",
    "decisions.view_command",
    "core.view_auditentry",
]


class Command(BaseCommand):
    help = "Seed the demo: cluster `sandbox`, its policies, and the demo user."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--policies", type=Path, default=POLICIES)
        parser.add_argument(
            "--kubeconfig", type=Path, default=Path(settings.STATE_DIR) / "kubeconfig"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        document = read(options["policies"])
        password = settings.CONCERTINA_DEMO_PASSWORD or get_random_string(16)
        try:
            with transaction.atomic():
                _, changed = clusters.register(
                    "sandbox",
                    {"kubeconfig_path": str(options["kubeconfig"]), "sandbox": True},
                    actor=None,
                )
                made = seed_policies(document) + int(changed)
                accounts.ensure_user(USER, password, permissions=PERMISSIONS, staff=True)
        except ValidationError as error:
            raise CommandError(f"{options['policies']}: {error.message_dict}") from error
        self.stdout.write(f"Demo: {made} rows made or changed; user {USER}.")
        if not settings.CONCERTINA_DEMO_PASSWORD:
            self.stdout.write(f"Password of {USER}: {password}")


def read(path: Path) -> dict[str, list[dict[str, Any]]]:
    """The document: {priority_classes: [...], elasticity_policies: [...]}, fields as in the API."""
    try:
        document = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise CommandError(f"{path} can't be read: {error}") from error
    known = {"priority_classes", "elasticity_policies"}
    if not isinstance(document, dict) or set(document) - known:
        raise CommandError(f"{path} must be a mapping with {' and '.join(sorted(known))}.")
    return document


def seed_policies(document: dict[str, list[dict[str, Any]]]) -> int:
    """Make what is missing. What is there stays as somebody may have changed it."""
    made = 0
    for fields in document.get("priority_classes") or []:
        if not PriorityClass.objects.filter(name=fields["name"]).exists():
            priorities.create(fields, actor=None)
            made += 1
    for fields in document.get("elasticity_policies") or []:
        if not ElasticityPolicy.objects.filter(name=fields["name"]).exists():
            elasticity.create(fields, actor=None)
            made += 1
    return made
