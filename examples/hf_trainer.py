"""Any trainer of transformers or TRL publishes with one callback: here a tiny Llama on random text.

    python examples/hf_trainer.py [RUN]

RUN is a folder, s3://bucket/prefix or hf://buckets/…; a temporary folder by default.
"""

import logging
import sys
import tempfile

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from wisp.hf import PublishCallback

logging.basicConfig(level=logging.WARNING, format="%(message)s")
logging.getLogger("wisp").setLevel(logging.INFO)
run = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="wisp-") + "/run"

torch.manual_seed(0)
model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True,
    )
)  # fmt: skip
text = torch.randint(256, (64, 16))
arguments = TrainingArguments(
    output_dir=tempfile.mkdtemp(prefix="wisp-"), max_steps=6, per_device_train_batch_size=8,
    learning_rate=3e-6, report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True,
)  # fmt: skip
publish = PublishCallback(run, every=2, dtype=torch.bfloat16)
Trainer(
    model,
    arguments,
    train_dataset=[{"input_ids": row, "labels": row} for row in text],
    callbacks=[publish],
).train()

print(publish.publisher.stats)
