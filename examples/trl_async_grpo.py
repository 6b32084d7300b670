"""TRL's AsyncGRPO with vLLM servers that take their weights from a bucket.

Start one or more servers, on any machines that reach the bucket:

    WISP_RUN=s3://bucket/run vllm serve Qwen/Qwen3-0.6B \\
        --weight-transfer-config '{"backend": "wisp"}'

Then train, with nothing between trainer and servers but the bucket and HTTP:

    python examples/trl_async_grpo.py --model Qwen/Qwen3-0.6B --run s3://bucket/run \\
        --server http://gpu7:8000 --server http://gpu8:8000

The model learns to add. TRL asks one address for rollouts: with several servers, put a load
balancer in front of them and name it with --rollouts. Under `accelerate launch` with FSDP2,
--sharded lets each rank publish its own rows, without a gather.
"""

import argparse
import logging
import random
import re

from datasets import Dataset
from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer

from wisp.trl import BucketWeightTransfer, ShardedBucketWeightTransfer


def arguments(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", required=True, help="what the servers serve")
    parser.add_argument("--run", required=True, help="a new run: s3://bucket/prefix or a folder")
    parser.add_argument("--server", action="append", default=[], help="base URL; may be repeated")
    parser.add_argument("--rollouts", help="where TRL asks for rollouts; the first server if unset")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--sharded", action="store_true", help="FSDP2: publish without a gather")
    parser.add_argument("--out", default="async-grpo-out", help="folder of TRL's checkpoints")
    given = parser.parse_args(argv)
    if not given.server:
        parser.error("name at least one --server")
    return given


def sums(count, seed=0):
    """Prompts, and the answers that rewards are given for."""
    numbers = random.Random(seed)
    rows = {"prompt": [], "answer": []}
    for _ in range(count):
        a, b = numbers.randrange(100), numbers.randrange(100)
        question = f"What is {a} + {b}? Answer with the number alone."
        rows["prompt"].append([{"role": "user", "content": question}])
        rows["answer"].append(a + b)
    return Dataset.from_dict(rows)


def right_answer(completions, answer, **_):
    """1 for a completion whose last number is the sum."""
    rewards = []
    for completion, wanted in zip(completions, answer, strict=True):
        found = re.findall(r"-?\d+", completion[0]["content"])
        rewards.append(float(bool(found) and int(found[-1]) == wanted))
    return rewards


def main(argv=None):
    given = arguments(argv)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("wisp").setLevel(logging.INFO)
    kind = ShardedBucketWeightTransfer if given.sharded else BucketWeightTransfer
    transfer = kind(given.run, servers=given.server)
    trainer = AsyncGRPOTrainer(
        model=given.model,
        reward_funcs=right_answer,
        args=AsyncGRPOConfig(
            output_dir=given.out,
            max_steps=given.steps,
            vllm_server_base_url=given.rollouts or given.server[0],
            learning_rate=1e-6,
        ),
        train_dataset=sums(1000),
        weight_transfer=transfer,
    )
    if given.sharded:
        transfer.attach(trainer)
    trainer.train()


if __name__ == "__main__":
    main()
