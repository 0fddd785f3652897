#!/bin/sh
# Set up a fresh environment and explain one sentence with the model that ships inside.
set -eu
cd "$(dirname "$0")/.."
VENV=${WHENCE_VENV:-.venv}
[ -x "$VENV/bin/python" ] || python3 -m venv "$VENV"
"$VENV/bin/python" -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
exec "$VENV/bin/whence" explain "${1:-a deep and meaningful film .}"
