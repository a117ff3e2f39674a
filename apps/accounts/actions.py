"""Writes of accounts: one verb a function; row, audit entry and event in one transaction."""

from __future__ import annotations

from datetime import datetime

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from apps.accounts import tokens
from apps.accounts.models import ApiToken, User
from apps.core import audit

SHOWN = ("name", "prefix", "expires_at")


@transaction.atomic
def create_token(
    user: User, name: str, *, expires_at: datetime | None = None, actor: User | None
) -> tuple[ApiToken, str]:
    """A new personal token and its value, which can't be read again.

    Raises ValidationError naming `name` (taken by a live token) or `expires_at` (in the past).
    """
    now = timezone.now()
    if expires_at is not None and expires_at <= now:
        raise ValidationError({"expires_at": f"{expires_at.isoformat()} is in the past."})
    if user.api_tokens.filter(name=name, revoked_at=None).exists():
        raise ValidationError({"name": f"You have a token named {name!r}. Revoke it first."})
    value, prefix, digest = tokens.make("ct")
    token = ApiToken(
        user=user, name=name, prefix=prefix, digest=digest, created_at=now, expires_at=expires_at
    )
    token.full_clean()
    token.save()
    audit.record("create_token", token, actor=actor, after=audit.values(token, SHOWN))
    return token, value


@transaction.atomic
def revoke_token(token: ApiToken, *, actor: User | None) -> ApiToken:
    """End a token. Revoking again changes nothing."""
    token = ApiToken.objects.select_for_update().get(pk=token.pk)
    if token.revoked_at is None:
        token.revoked_at = timezone.now()
        token.save(update_fields=["revoked_at"])
        audit.record("revoke_token", token, actor=actor, before=audit.values(token, SHOWN))
    return token


@transaction.atomic
def ensure_user(
    username: str, password: str, *, permissions: list[str], staff: bool, actor: User | None = None
) -> User:
    """The user with this name, made if absent, with exactly this password and these permissions.

    `permissions` are "app.codename"; ValidationError names one that doesn't exist.
    """
    from django.contrib.auth.models import Permission

    user, created = User.objects.get_or_create(username=username)
    user.is_staff = staff
    if created or not user.check_password(password):
        user.set_password(password)
    user.save()
    wanted = []
    for name in permissions:
        app, _, codename = name.partition(".")
        found = Permission.objects.filter(content_type__app_label=app, codename=codename).first()
        if found is None:
            raise ValidationError({"permissions": f"There is no permission {name!r}."})
        wanted.append(found)
    user.user_permissions.set(wanted)
    if created:
        audit.record("create_user", user, actor=actor, after=audit.values(user, ("username",)))
    return user
