"""Who may do what over the API."""

from __future__ import annotations

from rest_framework.permissions import SAFE_METHODS, DjangoModelPermissions, IsAuthenticated
from rest_framework.request import Request
from rest_framework.views import APIView


class ReadAllWriteWithPermission(IsAuthenticated):
    """Anyone signed in reads; staff with the model's add, change or delete permission writes."""

    message = "Only staff with the permission for it may change this."

    def has_permission(self, request: Request, view: APIView) -> bool:
        if not super().has_permission(request, view):
            return False
        if request.method in SAFE_METHODS:
            return True
        return bool(request.user.is_staff) and DjangoModelPermissions().has_permission(
            request, view
        )
