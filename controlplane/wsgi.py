"""For servers that only speak WSGI; the live stream needs ASGI."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings.development")
application = get_wsgi_application()
