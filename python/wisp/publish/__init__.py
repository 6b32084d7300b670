"""The trainer's side: a model's weights become steps of a run.

Start at `publisher`: it stages a model's tensors (`staging`), finds what changed on their device
where it can (`device_diff`) and has the library commit the step in the background; `exit_flush`
sees to steps that are in flight when the process ends. `stream_publisher` takes weights one by one,
and `handed_changes` diffs them as they pass. `wisp.sharded` publishes from several ranks.
"""
