#!/usr/bin/env bash
# The researcher's whole path on a small made-up corpus: captions -> phrases -> features -> train -> evaluate -> table.
#
#   bash examples/whole_path.sh [FOLDER] [STEPS]      FOLDER is new (default: a temporary one); STEPS of training (200)
#
# The corpus is random (examples/made_up_corpus.py): the numbers say that the path works, nothing else.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-$(mktemp -d)}
steps=${2:-200}
mkdir -p "$folder"
cd "$folder"
python=${PYTHON:-python3}
stepformer() { "$python" -m stepformer "$@"; }
began=$(date +%s)
at() { echo "== $(($(date +%s) - began)) s: $*"; }

at "a corpus: captions per video, features of one encoder, annotations"
"$python" "$here/made_up_corpus.py" corpus corpus

at "captions to phrases"
stepformer prepare phrases corpus/captions phrases.jsonl --jobs 1 -q
"$python" "$here/made_up_corpus.py" vectors vectors.npz phrases.jsonl corpus/COIN.json

at "features and phrases to a store"
encoder="precomputed:corpus/features?rate_hz=1&text=vectors.npz"
stepformer prepare features corpus/features store --from arrays --encoder "$encoder" --captions corpus/captions -q

at "training, $steps steps; the training subset's annotations choose the best weights"
cat > run.toml <<TOML
steps = $steps
batch = 8
save_every = $steps
loggers = ["csv"]
[model]
dim = 64
heads = 4
layers = 2
feedforward = 128
slots = 12
[data]
store = "store"
[validation]
every = $((steps / 2))
dataset = "corpus/COIN.json"
subset = "training"
features = "corpus/features"
texts = "vectors.npz"
TOML
stepformer train --config run.toml --out run --threads 1 --dry-run -q > /dev/null
stepformer train --config run.toml --out run --threads 1 -q

at "steps of the test videos, and their scores"
stepformer discover corpus/features --model run --encoder "$encoder" --out found --no-labels --vectors -q > /dev/null
stepformer evaluate corpus/COIN.json --predictions found --subset testing --protocol table1

at "the table"
stepformer reproduce table2 --dataset corpus/COIN.json --features corpus/features --texts vectors.npz --subset testing \
  --checkpoint run --only control,model --seeds 0 --out table -q > /dev/null
cat table/table2.md
at "done, in $folder"
