"""Tests: SQLite, or PostgreSQL where DATABASE_URL says so; no Redis unless a test brings it.

A test that needs Redis sets `settings.REDIS_URL` (see tests/conftest.py).
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from controlplane.settings.base import *  # noqa: F403
from controlplane.settings.base import DATABASES, SPECTACULAR_SETTINGS, env

SECRET_KEY = "only-for-tests-" + "x" * 40
ALLOWED_HOSTS = ["*"]
STATE_DIR = Path(tempfile.gettempdir()) / "concertina-tests"
STATIC_ROOT = STATE_DIR / "static"
if not env.text("DATABASE_URL"):
    DATABASES["default"]["NAME"] = STATE_DIR / "unused.sqlite3"
    # A file, not Django's shared memory: there, threads that write at once get "database table is
    # locked" immediately, whatever the timeout is (https://www.sqlite.org/sharedcache.html).
    DATABASES["default"]["TEST"] = {"NAME": STATE_DIR / f"test-{os.getpid()}.sqlite3"}
    STATE_DIR.mkdir(parents=True, exist_ok=True)
# Nothing listens there: what touches Redis by accident fails fast, and must not break a write.
REDIS_URL = env.text("REDIS_URL", "redis://127.0.0.1:1/0")
CACHES = {
    "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
    "local": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "LOCATION": "local"},
}
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
STATICFILES_DIRS: list[str] = []
CONCERTINA_DEMO = True
WHITENOISE_AUTOREFRESH = True  # don't scan STATIC_ROOT at start
SPECTACULAR_SETTINGS = {**SPECTACULAR_SETTINGS}
