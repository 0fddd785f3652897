#!/bin/sh
# Set up a fresh environment and explain one sentence with the model that ships inside.
set -eu
cd "$(dirname "$0")/.."
VENV=${WHEREFROM_VENV:-.venv}
QUIET=--quiet
if [ ! -x "$VENV/bin/wherefrom" ]; then
    QUIET=
    echo "Setting up $VENV with torch, transformers and what they need; the first time this takes some minutes."
fi
[ -x "$VENV/bin/python" ] || python3 -m venv "$VENV"
# shellcheck disable=SC2086  # no argument at all where pip shows what it does
"$VENV/bin/python" -m pip install $QUIET --disable-pip-version-check -c constraints.txt -e .
[ -n "$QUIET" ] || echo "Done. Loading the model:"
exec "$VENV/bin/wherefrom" explain -- "${1-a deep and meaningful film .}"
