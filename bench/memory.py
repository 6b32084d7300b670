"""Peak anonymous memory of `wisp diff` and `wisp apply`, on a pair far larger than the limit."""
from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path

LIMIT_MB = 300


def peak_anonymous_mb(command: list[str]) -> float:
    """Polls RssAnon, which leaves out mapped files: those pages are the kernel's to take back."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    peak = 0
    while process.poll() is None:
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
        except OSError:
            break
        for line in status.splitlines():
            if line.startswith("RssAnon:"):
                peak = max(peak, int(line.split()[1]))
        time.sleep(0.002)
    if process.wait() != 0:
        raise SystemExit(f"{command} failed")
    return peak / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wisp", default="build/wisp")
    parser.add_argument("--make-pair", default="build/release/bin/wisp_make_pair")
    parser.add_argument("--gigabytes", type=float, default=4)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    layers = max(1, round((args.gigabytes * 1e9 - 311e6) / 31.5e6))
    with tempfile.TemporaryDirectory(dir="build") as folder:
        subprocess.run([args.make_pair, folder, str(layers)], check=True)
        old, new, delta, out = (f"{folder}/{n}.safetensors" for n in ("old", "new", "delta", "out"))
        size = Path(old).stat().st_size
        rows = {
            "diff": peak_anonymous_mb([args.wisp, "diff", old, new, "-o", delta]),
            "apply -o": peak_anonymous_mb([args.wisp, "apply", old, delta, "-o", out]),
            "apply --in-place": peak_anonymous_mb([args.wisp, "apply", old, delta, "--in-place"]),
        }
    for verb, peak in rows.items():
        print(f"{verb:18} {peak:7.1f} MB of anonymous memory ({size / 1e9:.2f} GB each side)")
    if args.json:
        args.json.write_text(json.dumps({"checkpoint_bytes": size, "peak_anonymous_mb": rows}, indent=2) + "\n")
    if max(rows.values()) > LIMIT_MB:
        raise SystemExit(f"more than {LIMIT_MB} MB")


if __name__ == "__main__":
    main()
