"""Settings that every environment shares. Values from outside come through `environment.py`."""

from __future__ import annotations

from controlplane.settings.environment import ROOT, Environment, database

env = Environment()

BASE_DIR = ROOT
STATE_DIR = env.folder("CONCERTINA_STATE_DIR", ".run")
SECRET_KEY = env.text("CONCERTINA_SECRET_KEY")
DEBUG = False
ALLOWED_HOSTS = env.names("CONCERTINA_ALLOWED_HOSTS")
CSRF_TRUSTED_ORIGINS = env.names("CONCERTINA_CSRF_TRUSTED_ORIGINS")

INSTALLED_APPS = [
    "unfold",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "django_filters",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "django_prometheus",
    "django_vite",
    "apps.core",
    "apps.accounts",
    "apps.clusters",
    "apps.priorities",
    "apps.elasticity",
    "apps.training",
    "apps.decisions",
]

MIDDLEWARE = [
    "django_prometheus.middleware.PrometheusBeforeMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "apps.core.middleware.ContentSecurityPolicyMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_prometheus.middleware.PrometheusAfterMiddleware",
]

ROOT_URLCONF = "controlplane.urls"
ASGI_APPLICATION = "controlplane.asgi.application"
WSGI_APPLICATION = "controlplane.wsgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

DATABASES = {"default": database(env.text("DATABASE_URL", f"sqlite:///{STATE_DIR / 'db.sqlite3'}"))}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

REDIS_URL = env.text(
    "REDIS_URL", f"redis://127.0.0.1:{env.integer('CONCERTINA_REDIS_PORT', 8002)}/0"
)
CACHES = {
    "default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": REDIS_URL},
    # What must work while Redis is away (login throttling) falls back to this one.
    "local": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
}

AUTH_USER_MODEL = "accounts.User"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {
        "NAME": "django.contrib.auth.password_validation.MinimumLengthValidator",
        "OPTIONS": {"min_length": 10},
    },
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]
# scrypt is memory-hard and in the standard library (OWASP password storage cheat sheet);
# PBKDF2 stays to read hashes made elsewhere, which Django then upgrades at sign-in.
PASSWORD_HASHERS = [
    "django.contrib.auth.hashers.ScryptPasswordHasher",
    "django.contrib.auth.hashers.PBKDF2PasswordHasher",
]
LOGIN_URL = "/sign-in"
SESSION_COOKIE_NAME = "concertina_session"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_AGE = 60 * 60 * 24 * 7
CSRF_COOKIE_NAME = "concertina_csrf"
CSRF_COOKIE_SAMESITE = "Lax"
CSRF_FAILURE_VIEW = "apps.core.api.errors.csrf_failure"
X_FRAME_OPTIONS = "DENY"
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
# As much as one telemetry envelope may hold (wire.MAX_BYTES); more is refused (413).
DATA_UPLOAD_MAX_MEMORY_SIZE = 4 * 1024 * 1024

LANGUAGE_CODE = "en"
USE_I18N = False
USE_TZ = True
TIME_ZONE = "UTC"

STATIC_URL = "/static/"
STATIC_ROOT = STATE_DIR / "static"
FRONTEND_DIST = BASE_DIR / "frontend" / "dist"
STATICFILES_DIRS = [FRONTEND_DIST] if FRONTEND_DIST.is_dir() else []
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    # Not the manifest storage: Vite has hashed the names already, twice loads the entry twice.
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedStaticFilesStorage"},
}
# Vite's names: assets/index-BkX3f0aQ.js
WHITENOISE_IMMUTABLE_FILE_TEST = r"^.*/assets/.+[-.][0-9A-Za-z_-]{8}\.[0-9a-z.]+$"
WHITENOISE_USE_FINDERS = False
DJANGO_VITE = {
    "default": {
        "dev_mode": False,
        "manifest_path": FRONTEND_DIST / "manifest.json",
        "static_url_prefix": "",
    }
}

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "apps.accounts.authentication.ApiTokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["apps.core.api.parsers.BoundedJSONParser"],
    "DEFAULT_SCHEMA_CLASS": "apps.core.api.schema.ConcertinaSchema",
    "DEFAULT_FILTER_BACKENDS": ["django_filters.rest_framework.DjangoFilterBackend"],
    "DEFAULT_PAGINATION_CLASS": "apps.core.api.pagination.TimePagination",
    "PAGE_SIZE": 50,
    "EXCEPTION_HANDLER": "apps.core.api.errors.handle",
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
    "UNAUTHENTICATED_USER": "django.contrib.auth.models.AnonymousUser",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Concertina",
    "VERSION": "1",
    "DESCRIPTION": "Elastic training jobs on shared accelerator clusters: capacity, jobs, "
    "decisions and their reasons.",
    "SCHEMA_PATH_PREFIX": r"/api/v1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "COMPONENT_SPLIT_REQUEST": True,
    "COMPONENT_SPLIT_PATCH": True,
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    "ENUM_ADD_EXPLICIT_BLANK_NULL_CHOICE": False,
    "SORT_OPERATION_PARAMETERS": False,
    "OAS_VERSION": "3.1.1",
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "apps.core.api.schema.add_stream",
    ],
    "ENUM_NAME_OVERRIDES": {
        "PreemptionPolicy": "apps.priorities.choices.PreemptionPolicy",
        "PrioritySource": "apps.priorities.choices.PrioritySource",
        "BatchPolicy": "apps.elasticity.choices.BatchPolicy",
        "LearningRateRule": "apps.elasticity.choices.LearningRateRule",
        "JobPhase": "apps.training.choices.JobPhase",
        "ReplicaPhase": "apps.training.choices.ReplicaPhase",
        "RecoveryStage": "apps.training.choices.RecoveryStage",
        "FaultSignal": "apps.training.choices.FaultSignal",
        "EventKind": "apps.training.choices.EventKind",
        "CommandKind": "apps.decisions.choices.CommandKind",
        "CommandState": "apps.decisions.choices.CommandState",
    },
    "TAGS": [
        {"name": "session", "description": "Sign in and out; personal tokens"},
        {"name": "clusters", "description": "Clusters, nodes, capacity, pending demand"},
        {"name": "jobs", "description": "Training jobs and what their trainers report"},
        {"name": "decisions", "description": "Plans, decisions with reasons, commands"},
        {"name": "policies", "description": "Priority classes and elasticity policies"},
        {"name": "audit", "description": "Who changed what, when"},
        {"name": "telemetry", "description": "Reports from trainers, and the live stream"},
    ],
}

# What trainers post to (the control plane writes it into each managed job's Secret).
CONCERTINA_PUBLIC_URL = env.text(
    "CONCERTINA_PUBLIC_URL", f"http://127.0.0.1:{env.integer('CONCERTINA_PORT', 8000)}"
)
CONCERTINA_DEMO = env.flag("CONCERTINA_DEMO")
CONCERTINA_DEMO_PASSWORD = env.text("CONCERTINA_DEMO_PASSWORD")
CONCERTINA_SANDBOX_PORT = env.integer("CONCERTINA_SANDBOX_PORT", 8001)
# Dotted path of signal(cluster, namespace, pod, signal): apps may not import the cluster client.
CONCERTINA_POD_SIGNALLER = "controlplane.wiring.signal_pod"
# Dotted path of what admits the Authorization header to the live stream.
CONCERTINA_STREAM_TOKENS = "apps.accounts.authentication.stream_token"
CONCERTINA_METRICS_TOKEN = env.text("CONCERTINA_METRICS_TOKEN")
CONCERTINA_EVENT_STREAM = "concertina:events"
CONCERTINA_EVENT_STREAM_LENGTH = 10_000

PROMETHEUS_EXPORT_MIGRATIONS = False

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "console": {"()": "apps.core.logs.console_formatter"},
        "json": {"()": "apps.core.logs.json_formatter"},
    },
    "handlers": {
        "stderr": {"class": "logging.StreamHandler", "formatter": "console"},
    },
    "root": {"handlers": ["stderr"], "level": env.text("CONCERTINA_LOG_LEVEL", "INFO").upper()},
    "loggers": {
        "django.server": {"handlers": ["stderr"], "level": "INFO", "propagate": False},
        "httpx": {"level": "WARNING"},
    },
}

UNFOLD = {
    "SITE_TITLE": "Concertina",
    "SITE_HEADER": "Concertina",
    "SITE_URL": "/",
    "SHOW_HISTORY": True,
    "SHOW_VIEW_ON_SITE": False,
}
