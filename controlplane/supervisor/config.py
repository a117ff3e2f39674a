"""What one run of the supervisor is to start, and where. Standard library only."""

from __future__ import annotations

import argparse
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEMO_USER = "demo"


class BadSetting(Exception):
    """A variable of the environment that can't be used; the sentence names it and the remedy."""


@dataclass(frozen=True, slots=True)
class Config:
    """Ports are on 127.0.0.1. `redis_url` is set where somebody else's Redis is to be used."""

    state_dir: Path
    web_port: int
    sandbox_port: int
    redis_port: int
    redis_url: str | None
    demo: bool
    verbose: bool

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.web_port}"

    @property
    def kubeconfig(self) -> Path:
        return self.state_dir / "kubeconfig"

    @property
    def logs(self) -> Path:
        return self.state_dir / "log"

    def ports(self) -> dict[str, tuple[str, int]]:
        """Variable -> (who listens there, port), for those that this run starts itself."""
        found = {
            "CONCERTINA_PORT": ("the web server", self.web_port),
            "CONCERTINA_SANDBOX_PORT": ("the sandbox cluster", self.sandbox_port),
        }
        if self.redis_url is None:
            found["CONCERTINA_REDIS_PORT"] = ("Valkey", self.redis_port)
        return found


def from_environment(arguments: list[str]) -> Config:
    """Read the command line and the environment. Raises BadSetting; argparse exits on bad flags."""
    parser = argparse.ArgumentParser(
        prog="python -m controlplane.supervisor",
        description="Run Concertina on this machine: the site, its workers and a sandbox cluster.",
    )
    parser.add_argument("--no-demo", action="store_true", help="leave the sandbox cluster empty")
    parser.add_argument("--state-dir", type=Path, help="where everything is kept (default: .run)")
    parser.add_argument("--verbose", action="store_true", help="show every log line here too")
    options = parser.parse_args(arguments)
    state = options.state_dir or Path(os.environ.get("CONCERTINA_STATE_DIR") or ROOT / ".run")
    return Config(
        state_dir=state.resolve(),
        web_port=port("CONCERTINA_PORT", 8000),
        sandbox_port=port("CONCERTINA_SANDBOX_PORT", 8001),
        redis_port=port("CONCERTINA_REDIS_PORT", 8002),
        redis_url=os.environ.get("REDIS_URL") or None,
        demo=not options.no_demo and os.environ.get("CONCERTINA_DEMO", "1") != "0",
        verbose=options.verbose,
    )


def port(name: str, default: int) -> int:
    text = os.environ.get(name) or str(default)
    if not text.isdigit() or not 1 <= int(text) <= 65535:
        raise BadSetting(f"{name} is {text!r}: give a port from 1 to 65535, such as {default}.")
    return int(text)


def child_environment(config: Config) -> dict[str, str]:
    """What every process is started with; what the caller's environment says goes first."""
    environment = dict(os.environ)
    # Byte code is written: the second start is half as long.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment["PATH"] = f"{ROOT / '.venv' / 'bin'}{os.pathsep}{environment.get('PATH', '')}"
    environment["PYTHONPATH"] = os.pathsep.join(
        part for part in (str(ROOT), environment.get("PYTHONPATH", "")) if part
    )
    environment["PYTHONUNBUFFERED"] = "1"
    environment["CONCERTINA_STATE_DIR"] = str(config.state_dir)
    environment["CONCERTINA_DEMO"] = "1" if config.demo else "0"
    defaults = {
        "DJANGO_SETTINGS_MODULE": "controlplane.settings.development",
        "DATABASE_URL": f"sqlite:///{config.state_dir / 'db.sqlite3'}",
        "REDIS_URL": f"redis://127.0.0.1:{config.redis_port}/0",
        "CONCERTINA_PUBLIC_URL": config.address,
        "CONCERTINA_PORT": str(config.web_port),
        "CONCERTINA_SANDBOX_PORT": str(config.sandbox_port),
    }
    for name, value in defaults.items():
        environment[name] = environment.get(name) or value
    for name, file, size in (
        ("CONCERTINA_SECRET_KEY", "secret-key", 50),
        ("CONCERTINA_DEMO_PASSWORD", "demo-password", 12),
    ):
        environment[name] = environment.get(name) or kept_secret(config.state_dir / file, size)
    return environment


def kept_secret(path: Path, size: int) -> str:
    """The secret in the file, made of `size` random bytes at first; only its owner may read it."""
    try:
        if text := path.read_text().strip():
            return text
    except FileNotFoundError:
        pass
    value = secrets.token_urlsafe(size)
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(value + "\n")
    return value
