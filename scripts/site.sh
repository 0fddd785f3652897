#!/bin/sh
# Build the book into build/site, strictly and without a network: sh scripts/site.sh
# The environment needs the extra `docs`; arguments go to mkdocs.
set -eu
cd "$(dirname "$0")/.."
VENV=${WHEREFROM_VENV:-.venv}
[ -x "$VENV/bin/python" ] || python3 -m venv "$VENV"
"$VENV/bin/python" -c "import mkdocs, material, mkdocstrings, wherefrom" 2>/dev/null ||
    "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs,plot]'
HF_HUB_OFFLINE=1 NO_MKDOCS_2_WARNING=1 "$VENV/bin/python" -m mkdocs build --strict --clean "$@"
echo "build/site/index.html"
