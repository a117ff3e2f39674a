"""Probes. `/healthz`: this process answers. `/readyz`: it can do its work."""

from __future__ import annotations

import redis
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, DatabaseError, connections
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

_migrated: set[str] = set()


@never_cache
@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"status": "ok"})


@never_cache
@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """503 without the database or with migrations missing. Without Redis the pages still answer,
    only not live: `degraded`, 200, so that a balancer doesn't take every web process away."""
    database = check_database()
    events = check_redis()
    status = "ok" if database == events == "ok" else "degraded"
    if database != "ok":
        status = "unavailable"
    return JsonResponse(
        {"status": status, "checks": {"database": database, "redis": events}},
        status=503 if status == "unavailable" else 200,
    )


def check_database() -> str:
    connection = connections[DEFAULT_DB_ALIAS]
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        name = str(connection.settings_dict["NAME"])
        if name not in _migrated:
            executor = MigrationExecutor(connection)
            missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
            if missing:
                return f"{len(missing)} migrations are missing: run manage.py migrate"
            _migrated.add(name)
    except DatabaseError as error:
        return f"the database can't be used: {str(error).splitlines()[0]}"
    return "ok"


def check_redis() -> str:
    try:
        with redis.Redis.from_url(
            settings.REDIS_URL, socket_timeout=0.5, socket_connect_timeout=0.5
        ) as client:
            client.ping()
    except (redis.RedisError, OSError) as error:
        return f"Redis can't be reached, pages are not live: {error}"
    return "ok"
