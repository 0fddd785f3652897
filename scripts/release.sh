#!/bin/sh
# Build wheel and sdist into dist/, check them, install the wheel in a fresh environment far from the clone, and run the
# README's own commands there: sh scripts/release.sh
# Nothing is uploaded. `LIMIT` is what package indexes take without asking (100 MB).
set -eu
cd "$(dirname "$0")/.."
LIMIT=${LIMIT:-100000000}
PYTHON=${PYTHON:-python3}
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT

"$PYTHON" -m venv "$WORK/tools"
"$WORK/tools/bin/python" -m pip install --quiet --disable-pip-version-check build twine check-wheel-contents
rm -rf dist
"$WORK/tools/bin/python" -m build --outdir dist . >"$WORK/build.log" 2>&1 || { cat "$WORK/build.log"; exit 1; }
"$WORK/tools/bin/python" -m twine check --strict dist/*
# W002: two models of one encoder have the same configuration of their tokenizer, each in its own folder.
"$WORK/tools/bin/check-wheel-contents" --ignore W002 dist/*.whl
"$PYTHON" scripts/release_check.py dist "$LIMIT"

echo "a fresh environment with nothing but the wheel:"
"$PYTHON" -m venv "$WORK/fresh"
CONSTRAINTS=$PWD/constraints.txt
WHEEL=$(ls "$PWD"/dist/*.whl)
README=$PWD/README.md
PAGE=$PWD/scripts/release_check.py
cd "$WORK"
"$WORK/fresh/bin/python" -m pip install --quiet --disable-pip-version-check -c "$CONSTRAINTS" "$WHEEL[plot]"
PATH="$WORK/fresh/bin:$PATH" HF_HUB_OFFLINE=1 "$WORK/fresh/bin/python" "$PAGE" --readme "$README"
