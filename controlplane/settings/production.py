"""Behind a TLS proxy. Refuses to start without its own secret, hosts and database."""

from __future__ import annotations

from controlplane.settings.base import *  # noqa: F403
from controlplane.settings.base import LOGGING, env

SECRET_KEY = env.required(
    "CONCERTINA_SECRET_KEY",
    "Set it to 50 random characters, the same for every process of this installation.",
)
if len(SECRET_KEY) < 32:
    from django.core.exceptions import ImproperlyConfigured

    raise ImproperlyConfigured(
        f"CONCERTINA_SECRET_KEY has {len(SECRET_KEY)} characters; it needs at least 32."
    )
env.required("CONCERTINA_ALLOWED_HOSTS", "Set it to the host names that users type, with commas.")
env.required("DATABASE_URL", "Set it to postgres://user:password@host:5432/concertina.")
env.required("REDIS_URL", "Set it to redis://host:6379/0.")

# 0 only where TLS ends nowhere (a closed test network): cookies then travel in the clear.
SECURE = env.flag("CONCERTINA_HTTPS", default=True)
SESSION_COOKIE_SECURE = SECURE
CSRF_COOKIE_SECURE = SECURE
SECURE_SSL_REDIRECT = SECURE and env.flag("CONCERTINA_SSL_REDIRECT", default=True)
# Probes come from inside the cluster, over plain HTTP, to the pod's address.
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$", r"^metrics$"]
SECURE_HSTS_SECONDS = env.integer("CONCERTINA_HSTS_SECONDS", 31_536_000) if SECURE else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE and env.flag("CONCERTINA_HSTS_SUBDOMAINS", default=False)
SECURE_HSTS_PRELOAD = False
# Only behind a proxy that sets the header itself and drops the client's.
if env.flag("CONCERTINA_BEHIND_PROXY", default=True):
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")

LOGGING["handlers"]["stderr"]["formatter"] = "json"
