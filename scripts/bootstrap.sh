#!/bin/sh
# Finds Python 3.11 and hands over to the installer (scripts/installer), in the same process, so that
# Ctrl-C and signals sent to `make` reach what runs. CONCERTINA_PYTHON names another interpreter.
set -u
cd "$(dirname "$0")/.." || exit 1
for python in "${CONCERTINA_PYTHON:-}" python3.11 /usr/bin/python3.11 python3; do
  [ -n "$python" ] || continue
  if "$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' >/dev/null 2>&1; then
    exec "$python" -m scripts.installer "$@"
  fi
done
echo "Python 3.11 is missing: install it (on Debian 12: apt-get install python3.11 python3.11-venv)," \
  "or name an interpreter in CONCERTINA_PYTHON." >&2
exit 1
