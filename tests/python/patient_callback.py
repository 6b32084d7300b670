"""The callback of wisp.hf for tests that count steps."""

from typing import Any

from wisp.hf import PublishCallback


class PatientCallback(PublishCallback):
    """Waits for each commit: no step is folded into the next, however quick the training is."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        super().on_train_begin(args, state, control, **kwargs)
        self.publisher.flush()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        super().on_step_end(args, state, control, **kwargs)
        self.publisher.flush()
