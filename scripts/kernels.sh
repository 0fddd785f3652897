#!/bin/sh
# Run the tests of the Triton kernels in Triton's interpreter, on a machine without a GPU, in the environment of
# scripts/test.sh. Triton itself (the extra "triton") goes into build/triton if that environment has none.
# Arguments go to pytest, e.g.  sh scripts/kernels.sh -k attention
set -eu
cd "$(dirname "$0")/.."
PYTHON=${WHEREFROM_VENV:-.venv}/bin/python
if ! "$PYTHON" -c "import triton" 2>/dev/null; then
    [ -d build/triton ] || "$PYTHON" -m pip install --quiet --disable-pip-version-check --no-deps --target build/triton "triton>=3.4"
    PYTHONPATH=$PWD/build/triton${PYTHONPATH:+:$PYTHONPATH}
    export PYTHONPATH
fi
export TRITON_INTERPRET=1 OMP_NUM_THREADS=1
exec "$PYTHON" -m pytest -n 0 tests/method/test_kernels.py "$@"
