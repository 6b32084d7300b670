#!/usr/bin/env python3
"""Runs a command with a real S3 server behind it, and answers with its exit code.

usage: tests/s3/with_s3.py [--version 1.8.0] [--hub] COMMAND [ARGUMENT...]

The command finds the server through AWS_* and its bucket as WISP_TEST_BUCKET (an s3:// address).
With --hub it stands behind the gateway of the Hugging Face Hub (hub_front.py, an hf:// address).
"""

import argparse
import os
import subprocess
import sys

import hub_front
import s3_server


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--version", default=s3_server.KNOWN_GOOD)
    parser.add_argument("--hub", action="store_true")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    if not arguments.command:
        sys.exit(__doc__)
    front = hub_front.HubFront if arguments.hub else lambda: s3_server.S3Server(arguments.version)
    with front() as server:
        return subprocess.run(arguments.command, env={**os.environ, **server.environment()}).returncode


if __name__ == "__main__":
    sys.exit(main())
