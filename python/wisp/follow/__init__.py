"""The rollout side: something is kept at the newest step of a run.

Start at `follower`. What it writes to is a target (`targets`): tensors, a folder, or code of yours.
`follow_thread` is the thread that does the work, and `sync_report` what it tells.
"""
