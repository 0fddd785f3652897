#!/bin/sh
# Run the tests that lean on other people's code under the lowest and the newest versions that pyproject.toml allows, and
# under every Python that this machine has: sh scripts/matrix.sh
# A row is PYTHON TORCH TRANSFORMERS; rows of your own: sh scripts/matrix.sh "3.12 2.13.0 5.20.2" …
# A Python that is not here is named and left out. What came out is written to build/matrix.md.
set -eu
cd "$(dirname "$0")/.."
# What the models' own code decides: how blocks are opened and proved, what passes give, the authors' numbers, generation.
TESTS=${TESTS:-tests/core/test_golden.py tests/core/test_capture.py tests/core/test_generate.py tests/core/test_explanation.py tests/method/test_decoders_golden.py}
LOWEST="2.11.0 5.17.0"
NEWEST="2.15.0 5.23.0"
[ $# -gt 0 ] || set -- "3.11 $LOWEST" "3.11 $NEWEST" "3.12 $NEWEST" "3.13 $NEWEST" "3.14 $NEWEST"

interpreter() { # one that runs; pyenv's own names do so only where they are chosen
    for each in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
        if "$each" -c "" 2>/dev/null; then echo "$each"; return; fi
    done
}

mkdir -p build
REPORT=build/matrix.md
printf '| Python | torch | transformers | result |\n|---|---|---|---|\n' >"$REPORT"
FAILED=0
for ROW in "$@"; do
    # shellcheck disable=SC2086  # a row is three words
    set -- $ROW
    FOUND=$(interpreter "$1")
    if [ -z "$FOUND" ]; then
        RESULT="not run: no such Python here"
    else
        WORK=$(mktemp -d)
        "$FOUND" -m venv "$WORK/venv"
        if "$WORK/venv/bin/python" -m pip install --quiet --disable-pip-version-check "torch==$2" "transformers==$3" -e '.[plot,pandas,eval]' pytest hypothesis networkx >"$WORK/log" 2>&1; then
            # shellcheck disable=SC2086  # several files
            OMP_NUM_THREADS=1 "$WORK/venv/bin/python" -m pytest -q -p no:cacheprovider $TESTS >"$WORK/log" 2>&1 || { FAILED=1; grep -E '^(FAILED|ERROR|E  )' "$WORK/log" | head -20; }
            RESULT=$(tail -1 "$WORK/log" | tr -d '=')
        else
            FAILED=1
            RESULT="not installed: $(grep -v 'is ignored' "$WORK/log" | tail -1)"
        fi
        rm -rf "$WORK"
    fi
    echo "| $1 | $2 | $3 | $RESULT |" | tee -a "$REPORT"
done
exit $FAILED
