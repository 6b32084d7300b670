"""One rank of an engine, at the feed of its host.

Start at `rank_follower`: it proves where its memory keeps the run's tensors (`rank_plan`), stages
each step (`stage_builder`) and switches once all ranks have agreed (`rank_vote`). In swift runs it
also answers the feed with words of the state that it holds (`gather`).
"""
