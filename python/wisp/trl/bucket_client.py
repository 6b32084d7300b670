"""GRPOTrainer and its kin in vLLM server mode, with a bucket in the place of NCCL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .bucket_transfer import BucketWeightTransfer


@contextmanager
def bucket_client(transfer: BucketWeightTransfer) -> Iterator[BucketWeightTransfer]:
    """GRPOTrainer and its kin in vLLM server mode, made inside this, sync through `transfer`.

        with bucket_client(BucketWeightTransfer(run, servers=["http://gpu7:8000"])):
            trainer = GRPOTrainer(..., args=GRPOConfig(use_vllm=True, vllm_mode="server", ...))

    These trainers make their client of the server themselves and take no other, so TRL's class is
    replaced for the time of the block by one that publishes where TRL's would send through NCCL.
    Steps count the syncs, after the newest in the run.
    """
    from trl.generation import vllm_generation

    theirs = vllm_generation.VLLMClient

    class BucketClient(theirs):  # type: ignore[misc,valid-type]
        def init_communicator(self, device: Any = 0) -> None:
            transfer.init_weight_transfer()

        def update_named_params(self, metadata: Any, named_params: Any) -> None:
            transfer.send_weights(named_params)

        def reset_prefix_cache(self) -> None:
            """The servers do it with the switch."""

        def close_communicator(self) -> None:
            transfer.destroy()

    vllm_generation.VLLMClient = BucketClient
    try:
        yield transfer
    finally:
        vllm_generation.VLLMClient = theirs
