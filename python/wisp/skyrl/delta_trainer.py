"""SkyRL's trainer engine `delta`: its settings, read as those of a run."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from ..errors import InvalidError
from ..vllm.trainer import TrainerEngine, TrainerInfo, TrainerSettings

__all__ = ["DeltaTrainerEngine"]

logger = logging.getLogger("wisp")

#: Beside full checkpoints lies what is not weights.
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".index.json")


class DeltaSettings(TrainerSettings):
    """SkyRL's `delta_weight_sync`.

    `sync_dir` is the run, `publish_staging_dir` the publisher's scratch, `local_checkpoint_dir` the
    servers'. Sizes of files and formats for reloading mean nothing here: nothing is reloaded.
    """

    def info_of(self, init_info: Any) -> TrainerInfo:
        """The run that SkyRL calls `sync_dir`."""
        try:
            return TrainerInfo(
                rank=init_info.rank,
                run=init_info.sync_dir,
                servers=[],
                dtype=None,  # SkyRL's source gives what generator.inference_engine.model_dtype says
                server_info={"scratch": init_info.local_checkpoint_dir},
                options={
                    "scratch": init_info.publish_staging_dir,
                    "threads": init_info.publish_num_workers or 0,
                    "side_files": side_files_of(init_info.base_model_path),
                },
            )
        except AttributeError as error:
            raise InvalidError(
                f"this SkyRL has other settings of delta_weight_sync than wisp knows: {error}; "
                "wisp.skyrl works with SkyRL 0.4"
            ) from error

    def urls_of(self, client: Any) -> list[str]:
        """SkyRL's client knows several servers."""
        return list(getattr(client, "_urls", ())) or super().urls_of(client)


class DeltaTrainerEngine(TrainerEngine):
    """What `build_trainer_engine` makes for `weight_sync_backend=delta`."""

    settings = DeltaSettings()

    #: What SkyRL's worker asks of an engine: the switch itself forgets what prefixes it must.
    skyrl_handles_prefix_cache_reset = True
    skyrl_force_disable_expandable_segments = False
    skyrl_empty_cache_after_send = True
    _recompute = False
    _draft_source: Any = None

    @property
    def skyrl_draft_source(self) -> Any:
        """The draft model's weights, where there is one: they stay as the servers loaded them."""
        return self._draft_source

    @skyrl_draft_source.setter
    def skyrl_draft_source(self, source: Any) -> None:
        if source is not None and self._draft_source is None:
            logger.warning(
                "the draft model's own weights stay as the servers have loaded them: fewer of its "
                "tokens may be accepted as training goes on"
            )
        self._draft_source = source

    def skyrl_set_reset_prefix_cache(self, reset: bool) -> None:
        """Whether requests under way are to compute anew what they have, too."""
        self._recompute = bool(reset)

    def send_weights(self) -> None:
        super().send_weights()
        forget = getattr(self.client, "reset_prefix_cache", None)
        if self.is_sender and self._recompute and forget is not None:
            forget(reset_running_requests=True)


def side_files_of(model: str) -> list[str]:
    """Configuration and tokenizer of a model's folder; none if `model` is a name of the Hub."""
    folder = Path(model)
    if not folder.is_dir():
        return []
    files = sorted(path for path in folder.iterdir() if path.is_file())
    return [str(path) for path in files if not path.name.endswith(_WEIGHTS)]
