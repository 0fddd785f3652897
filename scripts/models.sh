#!/bin/sh
# Train the models that docs/papers.md uses and that do not ship:  sh scripts/models.sh DATA FOLDER [DEVICE]
# DATA is a folder of datasets (docs/data.md): sst2, hatexplain, qqp, mnli, squad_v1. A training that was cut off resumes.
set -eu
DATA=$1 OUT=$2 DEVICE=${3:-auto}
PYTHON=${PYTHON:-python3}
mkdir -p "$OUT"
train() {
    out=$1
    shift
    "$PYTHON" -m wherefrom train "$@" --out "$OUT/$out" --device "$DEVICE" --precision float32 --quiet >"$OUT/$out.log" 2>&1
}
classify() {
    out=$1
    shift
    train "$out" classify "$@" --lr 1e-4
}
classify hatexplain "$DATA/hatexplain/train.parquet" --valid "$DATA/hatexplain/validation.parquet" &
JOBS=$!
classify second-sentiment "$DATA/sst2/train.parquet" --text sentence --valid "$DATA/sst2/validation.parquet" --epochs 0.25 --seed 1 &
JOBS="$JOBS $!"
classify qqp "$DATA/qqp/test.parquet" --text question1 --pair question2 --name 0=different --name 1=duplicate &
JOBS="$JOBS $!"
classify mnli "$DATA/mnli/validation_matched.parquet" --text premise --pair hypothesis &
JOBS="$JOBS $!"
if [ ! -f "$OUT/squad/train.json" ]; then "$PYTHON" scripts/squad.py split "$DATA/squad_v1/validation.parquet" "$OUT/squad" --held-out 8; fi
train qa qa "$OUT/squad/train.json" --positions 320 --held-out 0.04 --lr 2e-4
for job in $JOBS; do wait "$job"; done # one that failed ends the script with its status; its log is in FOLDER
