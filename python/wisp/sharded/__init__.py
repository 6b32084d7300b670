"""Publishing a model whose weights are spread over ranks of torch.distributed, without a gather.

Start at `sharded_publisher`; `rounds` is what one rank does for each step, `shard_plan` says who
codes which blocks.
"""

from .round_messages import ShardedReport
from .sharded_publisher import ShardedPublisher

__all__ = ["ShardedPublisher", "ShardedReport"]
