#!/bin/sh
# Lock the requirement files anew (`make locks`), in the order in which they constrain each other.
# Versions that still fit are kept; to raise one, change its pin in the .in file first.
set -eu
cd "$(dirname "$0")/.."
for name in bootstrap runtime trainer development; do
  .venv/bin/uv pip compile --quiet --generate-hashes --python-version 3.11 --no-emit-index-url \
    --custom-compile-command "make locks" --output-file "requirements/$name.txt" "requirements/$name.in"
  echo "requirements/$name.txt"
done
