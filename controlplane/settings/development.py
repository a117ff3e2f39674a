"""`make up` and work on a laptop: one machine, plain HTTP on 127.0.0.1, state in `.run/`."""

from __future__ import annotations

import contextlib
import os
import secrets

from controlplane.settings.base import *  # noqa: F403
from controlplane.settings.base import ALLOWED_HOSTS, FRONTEND_DIST, SECRET_KEY, STATE_DIR, env

DEBUG = env.flag("CONCERTINA_DEBUG")
ALLOWED_HOSTS = ALLOWED_HOSTS or ["127.0.0.1", "localhost", "[::1]"]
STATE_DIR.mkdir(parents=True, exist_ok=True)


def _kept_secret() -> str:
    """A key of this installation's own, made once: sessions outlive a restart, none is shared."""
    path = STATE_DIR / "secret-key"
    with contextlib.suppress(FileExistsError):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(secrets.token_urlsafe(50))
    return path.read_text().strip()


SECRET_KEY = SECRET_KEY or _kept_secret()
CONCERTINA_DEMO = env.flag("CONCERTINA_DEMO", default=True)
# A front end that is rebuilt while the server runs shows without collectstatic.
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = DEBUG
STATICFILES_DIRS = [FRONTEND_DIST]
SILENCED_SYSTEM_CHECKS = ["staticfiles.W004", "django_vite.W001"]  # it may not be built yet
