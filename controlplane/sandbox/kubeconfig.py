"""The kubeconfig that the sandbox writes for its clients, and its bearer token."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import secrets
from pathlib import Path

import yaml

CONTEXT = "sandbox"


def token_from(folder: Path) -> str:
    """The token kept in a folder, made there once."""
    path = folder / "token"
    with contextlib.suppress(FileNotFoundError):
        kept = path.read_text().strip()
        if re.fullmatch(r"[-_A-Za-z0-9]{20,}", kept):
            return kept
    token = secrets.token_urlsafe(32)
    write_private(path, token + "\n")
    return token


def document(address: str, token: str, authority: bytes) -> dict[str, object]:
    """A kubeconfig with one cluster, one user and one context, all named `sandbox`."""
    trusted = base64.b64encode(authority).decode()
    server = {"server": address, "certificate-authority-data": trusted}
    cluster = {"name": CONTEXT, "cluster": server}
    user = {"name": CONTEXT, "user": {"token": token}}
    context = {"cluster": CONTEXT, "user": CONTEXT, "namespace": "default"}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [cluster],
        "users": [user],
        "contexts": [{"name": CONTEXT, "context": context}],
        "current-context": CONTEXT,
    }


def write(path: Path, address: str, token: str, authority: bytes) -> None:
    """Write the kubeconfig for `address` (mode 600)."""
    # through JSON: no YAML anchors for shared values
    plain = json.loads(json.dumps(document(address, token, authority)))
    write_private(path, yaml.safe_dump(plain, sort_keys=False))


def write_private(path: Path, text: str) -> None:
    """Replace a file at once, readable by its owner only."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w") as file:
        file.write(text)
    temporary.replace(path)
