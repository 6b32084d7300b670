"""Inference engines that serve a run.

From outside, `Driver` tells servers which step to serve. Inside an engine, one process per host
follows the run (`host_feed`), and each rank learns where its model keeps every weight
(`load_plan`), prepares the next step beside serving (`stage`) and switches to it when told
(`rank_follower`). `wisp.vllm` and `wisp.sglang` connect these to their engines.
"""

from .driver import Driver, Report

__all__ = ["Driver", "Report"]
