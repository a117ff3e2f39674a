"""A view set whose writes are calls of an app's actions."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from django.db import models
from rest_framework import viewsets
from rest_framework.serializers import BaseSerializer

from apps.core.api.permissions import ReadAllWriteWithPermission


class ActionViewSet(viewsets.ModelViewSet):
    """`actions` is a module with create(values, actor), change(row, values, actor) and
    delete(row, actor)."""

    actions: ModuleType
    permission_classes = [ReadAllWriteWithPermission]

    def perform_create(self, serializer: BaseSerializer[Any]) -> None:
        serializer.instance = self.actions.create(
            serializer.validated_data, actor=self.request.user
        )

    def perform_update(self, serializer: BaseSerializer[Any]) -> None:
        serializer.instance = self.actions.change(
            serializer.instance, serializer.validated_data, actor=self.request.user
        )

    def perform_destroy(self, instance: models.Model) -> None:
        self.actions.delete(instance, actor=self.request.user)
