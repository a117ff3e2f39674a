"""Must database and static files be prepared? Only where what they are made from changed."""

from __future__ import annotations

import os

from controlplane.supervisor.config import ROOT, Config
from controlplane.supervisor.stamps import Stamps, digest

INPUTS = (
    "apps/**/migrations/*.py",
    "apps/**/management/**/*.py",
    "controlplane/settings/*.py",
    "controlplane/supervisor/prepare.py",
    "controlplane/sandbox/demo/*.yaml",
    "requirements/runtime.txt",
    "frontend/dist/**/*",
)


def stamps(config: Config) -> Stamps:
    return Stamps(config.state_dir / "stamps")


def prepared_for(config: Config) -> str:
    """Digest of all that the preparation reads; the demo's seed writes the sandbox's address."""
    extra = (
        f"{config.state_dir} {config.sandbox_port} "
        f"{os.environ.get('DATABASE_URL')} {os.environ.get('CONCERTINA_DEMO_PASSWORD')}"
    )
    return digest(ROOT, INPUTS, extra)


def prepare_due(config: Config) -> bool:
    """True also where the database was removed, or is not this folder's: that may be new."""
    if os.environ.get("DATABASE_URL") or not (config.state_dir / "db.sqlite3").exists():
        return True
    return not stamps(config).holds("prepared", prepared_for(config))
