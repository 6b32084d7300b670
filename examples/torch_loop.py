"""A plain torch loop that publishes every optimizer step, and a follower that has the same weights.

    python examples/torch_loop.py [RUN]

RUN is a folder, s3://bucket/prefix or hf://buckets/…; a temporary folder by default.
"""

import logging
import sys
import tempfile

import torch

import wisp

logging.basicConfig(level=logging.INFO, format="%(message)s")
run = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="wisp-") + "/run"

torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Embedding(256, 64), torch.nn.Flatten(), torch.nn.Linear(512, 256), torch.nn.ReLU(),
    torch.nn.Linear(256, 256),
)  # fmt: skip
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-6)

# Train in float32, publish what the rollout servers run: bf16.
with wisp.Publisher(run, model, dtype=torch.bfloat16) as publisher:
    publisher.attach(optimizer)
    for _ in range(10):
        text = torch.randint(256, (32, 9))
        loss = torch.nn.functional.cross_entropy(model(text[:, :8]), text[:, 8])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

print(publisher.stats)
