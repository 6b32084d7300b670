"""A trainer written for vLLM's own weight transfer publishes through wisp, to a real server."""

from __future__ import annotations

import pytest
from conftest import import_or_skip

torch = pytest.importorskip("torch")
transfer = import_or_skip("vllm.distributed.weight_transfer")

from byte_model import save_tiny_qwen3  # noqa: E402
from page_blocks import blocks  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402
from vllm_process import VllmServer, expected_checksums, where_there_is  # noqa: E402

import wisp  # noqa: E402
import wisp.vllm  # noqa: E402


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_tiny_qwen3(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def server(folder, tmp_path_factory):
    started = VllmServer(folder, tmp_path_factory.mktemp("log") / "vllm.log").start()
    try:
        yield started.wait_ready()
    finally:
        started.kill()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """One for all tests: a server follows one."""
    return str(tmp_path_factory.mktemp("bucket") / "run")


class FourMethods:
    """A client that tells no address."""

    def __init__(self, url):
        client = transfer.HTTPVLLMWeightSyncClient(url)
        self.init_weight_transfer_engine = client.init_weight_transfer_engine
        self.start_weight_update = client.start_weight_update
        self.update_weights = client.update_weights
        self.finish_weight_update = client.finish_weight_update


class Yielded(transfer.WeightSource):
    """Another source than vLLM's own."""

    def __init__(self, model):
        self._model = model

    def metadata(self):
        return transfer.ModuleSource(self._model).metadata()

    def __iter__(self):
        for name, parameter in self._model.named_parameters():
            yield name, parameter.detach().clone()


def train(model, by=3):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.view(torch.int16).view(-1)[by::97] ^= by


def assert_served(server, model, step):
    assert server.weight_version == str(step)
    wanted = expected_checksums(dict(model.named_parameters()))
    assert where_there_is(server.checksums) in (None, wanted)
    assert server.post("/wisp/verify")["differing"] == 0


def test_the_page_runs(folder, server, run):
    """By address: the server stages, and pauses for the switch alone."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    (code,) = blocks("vllm_trainer.md", "python", run=run, server=server.url)
    steps = []

    class Watched(torch.optim.SGD):
        def step(self, closure=None):
            if steps:
                assert_served(server, model, names["engine"].step)
            steps.append(super().step(closure))

    names = {
        "model": model, "batches": range(2), "optimizer": Watched(model.parameters(), lr=0.1),
        "loss": lambda model, batch: model(torch.tensor([[1 + batch, 2]])).logits.float().sum(),
    }  # fmt: skip
    exec(code, names)
    assert len(steps) == 2
    assert_served(server, model, names["engine"].step)
    assert server.get("/wisp/status")["pause_seconds"] < 5
    assert wisp.status(run).head.step == names["engine"].step


@pytest.mark.parametrize("source_of", [transfer.ModuleSource, Yielded])
def test_a_client_without_addresses_is_driven_by_its_four_methods(folder, server, run, source_of):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    info = wisp.vllm.TrainerInfo(rank=0, run=run)
    engine = transfer.WeightTransferTrainerFactory.trainer_init(
        info, client=FourMethods(server.url), source=source_of(model)
    )
    for by in (5, 7):
        train(model, by)
        engine.send_weights()
        assert_served(server, model, engine.step)
    engine.shutdown()


def test_a_server_of_another_run_is_refused_at_the_start(folder, server, run, tmp_path):
    served = server.weight_version
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    with pytest.raises(wisp.UnavailableError, match="no server was told to follow"):
        transfer.WeightTransferTrainerFactory.trainer_init(
            wisp.vllm.TrainerInfo(rank=0, run=str(tmp_path / "another")),
            client=transfer.HTTPVLLMWeightSyncClient(server.url),
            source=transfer.ModuleSource(model),
        )
    assert server.weight_version == served
    assert not (tmp_path / "another").exists()
