"""Inference engines that serve a run.

From outside, `Driver` tells servers which step to serve. Inside an engine there are four packages,
each of which imports only those before it:

`feed`   one process per host follows the run and tells the ranks of each step
`plan`   where a rank's model keeps each weight, learned from the model's own loader
`stage`  what a rank will write for the next step, worked out while the current one is served
`rank`   a rank at its feed: it stages each step and switches to it when told

Start at `rank.rank_follower`. `wisp.vllm` and `wisp.sglang` connect it to their engines.
"""

from .driver import Driver, Report

__all__ = ["Driver", "Report"]
