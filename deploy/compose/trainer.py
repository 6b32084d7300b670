"""Stands for a trainer: weights that change a little with every step, published to a bucket.

usage: trainer.py RUN [--steps N] [--pause SECONDS]
"""

import argparse
import time

import numpy as np
import wisp


def start_run(address):
    """The store may not be up yet; a trainer that was started again goes on where it stopped."""
    while True:
        try:
            return wisp.init(address)
        except wisp.ConflictError:
            return None
        except wisp.UnavailableError as error:
            print(f"waiting: {error}", flush=True)
            time.sleep(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("run")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--pause", type=float, default=1.0)
    arguments = parser.parse_args()
    start_run(arguments.run)
    random = np.random.default_rng(0)
    weights = {"layers.0.weight": random.standard_normal((1024, 1024), np.float32).astype(np.float16)}
    with wisp.Publisher(arguments.run, weights) as publisher:
        for _ in range(arguments.steps):
            flat = weights["layers.0.weight"].reshape(-1)
            flat[random.integers(0, flat.size, flat.size // 200)] *= np.float16(1.01)
            print("step", publisher.publish(), flush=True)
            time.sleep(arguments.pause)


if __name__ == "__main__":
    main()
