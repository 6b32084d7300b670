"""TRL's online trainers with rollout servers that take their weights from a bucket.

    transfer = BucketWeightTransfer("s3://bucket/run", servers=["http://gpu7:8000"])
    trainer = AsyncGRPOTrainer(..., weight_transfer=transfer)

The servers are `vllm serve MODEL --weight-transfer-config '{"backend": "wisp"}'`. Trainers without
rollout servers (SFT, DPO) publish with wisp.hf.PublishCallback.

Buckets in TRL's own layout are published to by LayoutPublisher, and followed by
wisp.Follower(run, target, layout="trl").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .bucket_client import bucket_client
from .bucket_transfer import BucketWeightTransfer
from .layout_publisher import LayoutPublisher

if TYPE_CHECKING:
    from .sharded_transfer import ShardedBucketWeightTransfer

__all__ = [
    "BucketWeightTransfer",
    "LayoutPublisher",
    "ShardedBucketWeightTransfer",
    "bucket_client",
]


def __getattr__(name: str) -> object:
    # It needs torch.distributed.
    if name == "ShardedBucketWeightTransfer":
        from .sharded_transfer import ShardedBucketWeightTransfer

        return ShardedBucketWeightTransfer
    raise AttributeError(f"module 'wisp.trl' has no attribute '{name}'")
