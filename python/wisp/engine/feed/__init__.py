"""The feed of a host: one process that follows a run for all engine ranks there.

Start at `host_feed`, which the process runs, and `feed_link`, a reader's end of it. They exchange
`feed_messages`, and share the files of `feed_files`. The newest state is kept whole
(`shared_state`) or, in swift runs, asked of the ranks, which hold all of it (`relay_state`).
"""
