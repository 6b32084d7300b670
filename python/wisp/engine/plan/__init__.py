"""Where each element of a checkpoint lives in the memory of a running model, on this rank.

Start at `load_plan`. `load_recorder` learns a plan by watching the model's own loader, element by
element (`element_codes`); `run_plan` fits it to a run's tensors, and `coverage` says what of either
has no counterpart.
"""
