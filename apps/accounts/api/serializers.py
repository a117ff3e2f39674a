"""Sessions and personal tokens."""

from __future__ import annotations

from rest_framework import serializers

from apps.accounts.models import ApiToken, User


class SignInSerializer(serializers.Serializer):
    username = serializers.CharField(max_length=150)
    password = serializers.CharField(max_length=1024, trim_whitespace=False)


class UserSerializer(serializers.ModelSerializer):
    permissions = serializers.SerializerMethodField(
        help_text="Such as training.inject_fault or elasticity.change_elasticitypolicy."
    )

    class Meta:
        model = User
        fields = ["username", "is_staff", "permissions"]
        read_only_fields = fields

    def get_permissions(self, user: User) -> list[str]:
        return sorted(user.get_all_permissions())


class SessionSerializer(serializers.Serializer):
    authenticated = serializers.BooleanField()
    user = UserSerializer(allow_null=True)
    csrf_token = serializers.CharField(help_text="Send it as X-CSRFToken with each write.")
    demo = serializers.BooleanField(help_text="This installation runs the demo cluster.")
    server_time = serializers.DateTimeField()


class ApiTokenSerializer(serializers.ModelSerializer):
    class Meta:
        model = ApiToken
        fields = ["id", "name", "prefix", "created_at", "last_used_at", "expires_at"]
        read_only_fields = ["id", "prefix", "created_at", "last_used_at"]
        extra_kwargs = {"expires_at": {"required": False}}


class NewApiTokenSerializer(ApiTokenSerializer):
    token = serializers.CharField(read_only=True, help_text="Shown this once, kept as a digest.")

    class Meta(ApiTokenSerializer.Meta):
        fields = [*ApiTokenSerializer.Meta.fields, "token"]
