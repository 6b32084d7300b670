#!/usr/bin/env bash
# In the Space: serves MODEL and moves to every step of WISP_RUN by itself, as soon as it is there.
# Arguments are passed on to vllm serve.
set -euo pipefail

: "${MODEL:?set the variable MODEL of the Space to the checkpoint the run started from}"
: "${WISP_RUN:?set the variable WISP_RUN of the Space to hf://buckets/namespace/bucket/run}"
export WISP_RUN WISP_MODE=self

# Says at once, and in words, when the bucket cannot be read.
python -c 'import sys, wisp; print(wisp.status(sys.argv[1]))' "$WISP_RUN"

exec vllm serve "$MODEL" --host 0.0.0.0 --port "${PORT:-7860}" --dtype bfloat16 \
    --weight-transfer-config '{"backend": "wisp"}' "$@"
