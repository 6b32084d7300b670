"""A run for the model of sglang_model.py, and how a loader of it is told and asked."""

from __future__ import annotations

import json
import time

import torch
from sglang_model import checkpoint_tensors

import wisp


def train(tensors, step):
    """The next state: a few elements of every tensor, in their bits."""
    moved = {}
    for name, tensor in tensors.items():
        bits = tensor.clone().view(torch.int16)
        bits.view(-1)[step % 5 :: 7] ^= step + 1
        moved[name] = bits.view(torch.bfloat16)
    return moved


def publish(run, steps, states=None):
    """The state of each step, from the served one on; goes on after `states`."""
    states = states or []
    weights = checkpoint_tensors()
    with wisp.Publisher(run, weights, on_error="raise") as publisher:
        while len(states) < steps:
            states.append(train(states[-1], len(states)) if states else checkpoint_tensors())
            for name, tensor in weights.items():
                tensor.copy_(states[-1][name])
            publisher.publish(len(states) - 1)
            publisher.flush()
    return states


def same(model, expected):
    ours, theirs = model.bits(), expected.bits()
    assert ours.keys() == theirs.keys()
    return all(torch.equal(ours[name], theirs[name]) for name in ours)


def record(**fields):
    return [("wisp", torch.ByteTensor(list(json.dumps(fields).encode())))]


def status(model):
    return json.loads(bytes(int(b) for b in model.get_weights_by_name("wisp", 100, tp_size=1)))


def until(model, test):
    end = time.monotonic() + 60
    while not test(now := status(model)):
        assert time.monotonic() < end, now
        time.sleep(0.01)
    return now
