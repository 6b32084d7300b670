"""A model that loads as SGLang's models do, and a server that calls loaders as SGLang does.

SGLang itself has no kernels for this machine. What is taken from it: parameters with a
`weight_loader(param, loaded_weight, shard_id)`, stacked q/k/v and gate/up, tensor-parallel slices of
rows and columns, a padded vocabulary, tied embeddings, a copy of a projection that is made anew at
the end of loading (`w_vc` of its absorbed attention); and the routes of its HTTP server.
"""

from __future__ import annotations

import base64
import io
import pickle

import torch
import torch._dynamo  # the plan needs it: once, before ranks are forked
from engine_servers import ScriptedVllm
from torch import nn

from wisp.sglang import load_delta

VOCABULARY, PADDED = 50, 64
HIDDEN, HEADS, KV_HEADS, HEAD, INNER = 16, 4, 2, 8, 24
STACKED = [
    ("qkv_proj", "q_proj", "q"),
    ("qkv_proj", "k_proj", "k"),
    ("qkv_proj", "v_proj", "v"),
    ("gate_up_proj", "gate_proj", 0),
    ("gate_up_proj", "up_proj", 1),
]


def parameter(module, name, shape, loader):
    made = nn.Parameter(torch.zeros(shape, dtype=torch.bfloat16), requires_grad=False)
    made.weight_loader = loader
    module.register_parameter(name, made)


class Linear(nn.Module):
    """`shards`: rows of each part on this rank; `dim`: what the ranks split."""

    def __init__(self, shape, dim, rank, shards=None):
        super().__init__()
        self.dim, self.rank, self.shards = dim, rank, shards
        parameter(self, "weight", shape, self.weight_loader)

    def weight_loader(self, param, loaded_weight, shard_id=None):
        data = param.data
        if shard_id is not None:
            data = data.narrow(0, *self.shards[shard_id])
        size = data.shape[self.dim]
        loaded_weight = loaded_weight.narrow(self.dim, self.rank * size, size)
        assert data.shape == loaded_weight.shape
        data.copy_(loaded_weight)


class Embedding(nn.Module):
    def __init__(self, rank, world):
        super().__init__()
        self.rank = rank
        parameter(self, "weight", (PADDED // world, HIDDEN), self.weight_loader)

    def weight_loader(self, param, loaded_weight):
        first = self.rank * param.shape[0]
        rows = min(param.shape[0], VOCABULARY - first)
        param.data[:rows].copy_(loaded_weight[first : first + rows])
        param.data[rows:].fill_(0)


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(HIDDEN, dtype=torch.bfloat16), requires_grad=False)


class Layer(nn.Module):
    def __init__(self, rank, world):
        super().__init__()
        q, kv, inner = HEADS * HEAD // world, KV_HEADS * HEAD // world, INNER // world
        self.self_attn = nn.Module()
        self.self_attn.qkv_proj = Linear(
            (q + 2 * kv, HIDDEN), 0, rank, {"q": (0, q), "k": (q, kv), "v": (q + kv, kv)}
        )
        self.self_attn.o_proj = Linear((HIDDEN, q), 1, rank)
        self.mlp = nn.Module()
        self.mlp.gate_up_proj = Linear(
            (2 * inner, HIDDEN), 0, rank, {0: (0, inner), 1: (inner, inner)}
        )
        self.mlp.down_proj = Linear((HIDDEN, inner), 1, rank)
        self.input_layernorm = Norm()


class SglangModel(nn.Module):
    def __init__(self, rank=0, world=1, layers=2):
        super().__init__()
        self.model = nn.Module()
        self.model.embed_tokens = Embedding(rank, world)
        self.model.layers = nn.ModuleList(Layer(rank, world) for _ in range(layers))
        self.lm_head = self.model.embed_tokens

    def load_weights(self, weights):
        params = dict(self.named_parameters(remove_duplicate=False))
        for name, loaded_weight in weights:
            if name == "lm_head.weight":
                continue  # tied
            for stacked, single, shard_id in STACKED:
                if single not in name:
                    continue
                param = params[name.replace(single, stacked)]
                param.weight_loader(param, loaded_weight, shard_id)
                break
            else:
                param = params[name]
                loader = getattr(param, "weight_loader", None)
                if loader is None:
                    param.data.copy_(loaded_weight)
                else:
                    loader(param, loaded_weight)
        self.post_load_weights()

    def post_load_weights(self):
        for layer in self.model.layers:
            heads = layer.self_attn.o_proj.weight.unflatten(1, (-1, HEAD))
            layer.self_attn.w_vc = heads.transpose(0, 1).contiguous()

    def bits(self):
        held = dict(self.named_parameters())
        held |= {f"{i}.w_vc": layer.self_attn.w_vc for i, layer in enumerate(self.model.layers)}
        return {name: tensor.data.view(torch.int16).clone() for name, tensor in held.items()}


def checkpoint_tensors(seed=0, layers=2):
    """As transformers names and shapes them."""
    made = torch.Generator().manual_seed(seed)
    shapes = {"model.embed_tokens.weight": (VOCABULARY, HIDDEN)}
    for i in range(layers):
        layer = f"model.layers.{i}"
        shapes |= {
            f"{layer}.self_attn.q_proj.weight": (HEADS * HEAD, HIDDEN),
            f"{layer}.self_attn.k_proj.weight": (KV_HEADS * HEAD, HIDDEN),
            f"{layer}.self_attn.v_proj.weight": (KV_HEADS * HEAD, HIDDEN),
            f"{layer}.self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD),
            f"{layer}.mlp.gate_proj.weight": (INNER, HIDDEN),
            f"{layer}.mlp.up_proj.weight": (INNER, HIDDEN),
            f"{layer}.mlp.down_proj.weight": (HIDDEN, INNER),
            f"{layer}.input_layernorm.weight": (HIDDEN,),
        }
    return {n: torch.randn(s, generator=made).to(torch.bfloat16) for n, s in shapes.items()}


def loaded(tensors, rank=0, world=1):
    """A model as the server starts it."""
    model = SglangModel(rank, world)
    model.load_weights(tensors.items())
    return model


class _Reader(pickle.Unpickler):
    """SGLang's workers read a pickle of allowed names; ours needs one of them."""

    def find_class(self, module, name):
        assert (module, name) == ("torch", "ByteTensor"), (module, name)
        return torch.ByteTensor


class ScriptedSglang(ScriptedVllm):
    """The routes of SGLang's server around one model in this process."""

    def __init__(self, model, checkpoint):
        self.model, self.checkpoint = model, str(checkpoint)
        self.version, self.paused, self.session = "default", False, False
        super().__init__()

    def answer(self, method, path, body):
        if path == "/model_info":
            return 200, {"model_path": self.checkpoint, "weight_version": self.version}
        if path == "/server_info":
            return 200, {"tp_size": 1, "custom_weight_loader": ["wisp.sglang.load_delta"]}
        if path == "/get_weights_by_name":
            asked = getattr(self.model, "get_weights_by_name", None)
            found = asked(body["name"], body["truncate_size"], tp_size=1) if asked else None
            return (200, found) if found is not None else (400, {"error": {"message": "failed"}})
        self.acts.append(path)
        if path == "/pause_generation":
            self.paused = True
        elif path == "/continue_generation":
            self.paused = False
        elif path in ("/begin_weight_update", "/end_weight_update"):
            assert self.session == (path == "/end_weight_update")
            self.session = not self.session
        elif path == "/update_weights_from_tensor":
            assert self.session and self.paused and body["load_format"] == "wisp.sglang.load_delta"
            raw = base64.b64decode(body["serialized_named_tensors"][0], validate=True)
            load_delta(self.model, _Reader(io.BytesIO(raw)).load())
        elif path == "/update_weight_version":
            self.version = body["new_version"]
        else:
            return 404, {"detail": "Not Found"}
        return 200, {"success": True, "message": "Success"}
