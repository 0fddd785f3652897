#!/bin/sh
# Set up a fresh environment and run every check: format, lint, types, the book, tests.
# Arguments go to pytest, e.g.  sh scripts/test.sh -m slow
set -eu
cd "$(dirname "$0")/.."
VENV=${WHEREFROM_VENV:-.venv}
[ -x "$VENV/bin/python" ] || python3 -m venv "$VENV"
"$VENV/bin/python" -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,docs]'
"$VENV/bin/ruff" format --check .
"$VENV/bin/ruff" check .
OMP_NUM_THREADS=1 sh scripts/site.sh --quiet --site-dir build/checked-site & # strictly; beside mypy, which takes as long on another core
BOOK=$!
"$VENV/bin/mypy"
wait "$BOOK"
# Two workers on any machine: each holds PyTorch and the models inside (about 1.3 GB) and computes on one thread.
# Where there is room for more: sh scripts/test.sh -n 8
exec "$VENV/bin/python" -m pytest -n 2 "$@"
