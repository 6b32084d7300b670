"""The feed of a host: one process that follows a run for all engine ranks there.

Start at `host_feed`, the process, and `feed_link`, a reader's end of it; `feed_messages` is what
they say to each other and `feed_files` what they share on disk. The newest state is kept whole
(`shared_state`) or, in swift runs, asked of the ranks, which hold all of it (`relay_state`).
"""
