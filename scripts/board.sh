#!/bin/sh
# Measure the leaderboard anew: train its classifiers, benchmark them and the shipped models with every method, and write
# docs/leaderboard.md, its pictures and src/wherefrom/board/record.json: sh scripts/board.sh DATA OUT
# DATA holds the datasets of docs/data.md, a folder each. Everything runs side by side, on a GPU where there is one, and
# goes on where it was stopped; without a GPU it takes days. On a busy GPU start NVIDIA's MPS first.
# ROWS, SANE, EPOCHS and WORKERS make it smaller.
set -eu
cd "$(dirname "$0")/.."
DATA=$(cd "${1:?expected the folder of datasets, and one for what is measured}" && pwd)
OUT=${2:?expected a folder for what is measured}
PYTHON=${PYTHON:-.venv/bin/python}
DEVICE=${DEVICE:-$("$PYTHON" -c "import torch; print('cuda' if torch.cuda.is_available() else 'cpu')")}
mkdir -p "$OUT/logs" "$OUT/models"
export WHEREFROM_DATA="$DATA" OMP_NUM_THREADS="${OMP_NUM_THREADS:-2}" HF_HUB_OFFLINE=1

# Flows of long texts take a processor hours.
SHORT=$("$PYTHON" -c "
from wherefrom.board.choosing import LEFT_OUT
from wherefrom.method import methods, presets
print(','.join(each.name for each in (*methods(), *presets()) if each.name not in ('attention-flow', *LEFT_OUT)))")

benchmark() { # model data [more options]
    MODEL=$1 NAME=$2
    shift 2
    "$PYTHON" -m wherefrom benchmark --out "$OUT/board" --model "$MODEL" --data "$NAME" --rows "${ROWS:-200}" --sane-rows "${SANE:-12}" \
        --device "$DEVICE" --batch-size 32 --shard 34 --workers "${WORKERS:-2}" "$@" >"$OUT/logs/benchmark-$(basename "$MODEL").log" 2>&1
    echo "measured: $(basename "$MODEL") on $NAME"
}

train() { # name files and options
    NAME=$1
    shift
    [ ! -f "$OUT/models/$NAME/config.json" ] || return 0 # done before
    "$PYTHON" -m wherefrom train classify "$@" --out "$OUT/models/$NAME" --batch 64 --lr 1.5e-4 --epochs "${EPOCHS:-3}" \
        --precision float32 --device "$DEVICE" --quiet >"$OUT/logs/train-$NAME.log" 2>&1
    tail -1 "$OUT/logs/train-$NAME.log"
}

begin() { # a function and its arguments, beside the others
    "$@" &
    JOBS="$JOBS $!"
}

hatexplain() {
    train hatexplain "$DATA/hatexplain/train.parquet" --valid "$DATA/hatexplain/validation.parquet"
    benchmark "$OUT/models/hatexplain" hatexplain
}
qqp() {
    train qqp "$DATA/qqp/test.parquet" --valid "$DATA/qqp/validation.parquet" --text question1 --pair question2 --name 0=different --name 1=duplicate
    benchmark "$OUT/models/qqp" qqp
}
esnli() { # where its copy has no highlights, it is not asked what people marked
    train esnli "$DATA/esnli/test.parquet" "$DATA/mnli/validation_matched.parquet" --valid "$DATA/esnli/validation.parquet" --text premise --pair hypothesis
    benchmark "$OUT/models/esnli" esnli
}
imdb() {
    train imdb "$DATA/imdb_text2vec/train.parquet" "$DATA/imdb_counterfactual/train.parquet" --valid "$DATA/imdb_counterfactual/validation.parquet" \
        --longest 128 --name 0=negative --name 1=positive
    benchmark "$OUT/models/imdb" imdb_counterfactual --methods "$SHORT"
}
yelp() {
    train yelp "$DATA/yelp_stars/validation.parquet" --label stars --longest 128 \
        --name 1=negative --name 2=negative --name 3= --name 4=positive --name 5=positive
    benchmark "$OUT/models/yelp" yelp --methods "$SHORT"
}

JOBS=""
begin benchmark wherefrom/sentiment sst2
begin benchmark wherefrom/agreement linzen_lgd
begin benchmark wherefrom/mlm blimp
begin benchmark wherefrom/lm blimp-prompts
begin benchmark wherefrom/picture cifar10
begin benchmark wherefrom/translate multi30k
begin hatexplain
begin qqp
begin esnli
begin imdb
begin yelp
FAILED=0
for JOB in $JOBS; do
    wait "$JOB" || FAILED=1
done
[ "$FAILED" = 0 ] || { echo "some of it failed; $OUT/logs says why, and the same command goes on"; exit 1; }
"$PYTHON" -m wherefrom leaderboard "$OUT/board" --page "${PAGE:-docs/leaderboard.md}" --record "${RECORD:-src/wherefrom/board/record.json}"
