"""A model in memory as the checkpoint that `save_pretrained` would write of it.

Start at `checkpoint_names`: which tensors the checkpoint would hold, and which of the model's they
come from (`conversion_trace`), with a peft adapter merged in on the way (`merged_adapter`).
`model_files` writes the configuration and the tokenizer that go with them.
"""
