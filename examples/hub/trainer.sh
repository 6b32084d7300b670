#!/usr/bin/env bash
# On the trainer: makes the bucket and the run if they are not there, then trains and publishes.
#
#   NAMESPACE=acme BUCKET=weights RUN_NAME=qwen-rl ./trainer.sh python my_training.py
#
# The training program finds the run's address as its last argument and in WISP_RUN. Credentials:
# HF_TOKEN with Write for the bucket, and, for the better of the two ways,
# HF_S3_ACCESS_KEY_ID and HF_S3_SECRET_ACCESS_KEY ("Generate S3 credentials" in the token's menu).
set -euo pipefail

: "${NAMESPACE:?set NAMESPACE to your user name or organization on the Hub}"
: "${BUCKET:?set BUCKET to the name of the bucket}"
WISP_RUN="hf://buckets/$NAMESPACE/$BUCKET/${RUN_NAME:-run}"
export WISP_RUN
if (($# == 0)); then
    set -- python "$(dirname "$0")/../hf_trainer.py"
fi

if [[ -n ${HF_TOKEN:-} ]]; then
    hf buckets create "$NAMESPACE/$BUCKET" --private --exist-ok
fi

# Which way is in use, what it promises, and whether it keeps that; then the run, if there is none.
python - "$WISP_RUN" <<'PYTHON'
import sys

import wisp

run = sys.argv[1]
report = wisp.doctor(run.rpartition("/")[0], quick=True)
for finding in report.findings:
    if finding.name == "way" or finding.verdict == "fail":
        print(f"{finding.verdict}: {finding.detail}", file=sys.stderr)
        if finding.cure:
            print(f"  better: {finding.cure}", file=sys.stderr)
if not report.healthy:
    sys.exit("the bucket does not do; see above")
try:
    wisp.init(run, single_writer=not report.exclusive_create)
except wisp.ConflictError:
    print(f"{run} is there already, and is gone on with", file=sys.stderr)
PYTHON

exec "$@" "$WISP_RUN"
