"""Trainers of vLLM's weight transfer and of SkyRL publish: the adapters, without either package."""

from __future__ import annotations

import logging
import os
import sys
from types import SimpleNamespace

import pytest
from engine_servers import ScriptedVllm

import wisp

torch = pytest.importorskip("torch")

from vllm_contract import ModuleSource, RecordingClient, WeightSource, stand_in  # noqa: E402


@pytest.fixture
def factory(monkeypatch):
    return stand_in(monkeypatch)


@pytest.fixture
def info(factory):
    from wisp.vllm.trainer import TrainerInfo

    return TrainerInfo


@pytest.fixture
def run(tmp_path):
    return str(tmp_path / "run")


def model():
    torch.manual_seed(0)
    return torch.nn.Linear(8, 8).to(torch.bfloat16)


def train(module):
    with torch.no_grad():
        module.weight.view(torch.int16).view(-1)[::7] ^= 5


def assert_published(run, module):
    follower = torch.nn.Linear(8, 8).to(torch.bfloat16)
    wisp.Follower(run, follower).sync()
    for name, tensor in follower.state_dict().items():
        same = module.state_dict()[name].view(torch.int16)
        assert torch.equal(tensor.view(torch.int16), same), name


class Gathered(WeightSource):
    """Tensors that are made when they are asked for, in one buffer, as exports are."""

    def __init__(self, module):
        self.module, self.walks = module, 0

    def __iter__(self):
        self.walks += 1
        buffer = torch.zeros(64, dtype=torch.bfloat16)
        for name, parameter in self.module.named_parameters():
            view = buffer[: parameter.numel()].view(parameter.shape)
            yield name, view.copy_(parameter.detach())


@pytest.mark.parametrize("source_of", [ModuleSource, Gathered])
def test_a_trainer_publishes_by_the_name_of_the_backend(factory, info, run, source_of):
    module, client = model(), RecordingClient()
    engine = factory.trainer_init(info(rank=0, run=run), client=client, source=source_of(module))
    assert client.acts == [("init", {"run": run})]
    steps = []
    for _ in range(2):
        train(module)
        client.acts.clear()
        engine.send_weights()
        steps.append(engine.step)
        assert client.acts == [
            ("start",), ("update", {"step": engine.step}), ("finish", str(engine.step)),
        ]  # fmt: skip
        assert_published(run, module)
    assert steps[1] == steps[0] + 1
    engine.shutdown()


def test_other_ranks_only_take_part_in_the_collectives(factory, info, run):
    client, source = RecordingClient(), Gathered(model())
    engine = factory.trainer_init(info(rank=3, run=run), client=client, source=source)
    engine.send_weights()
    assert source.walks == 1 and client.acts == [] and engine.step is None
    assert not os.path.exists(run)
    engine.shutdown()


def test_servers_with_an_address_stage_before_they_pause(factory, info, run):
    module = model()
    with ScriptedVllm() as server:
        client = RecordingClient(server.url)
        told = info(rank=0, run=run, server_info={"scratch": "/scratch"}, run_id=None)
        engine = factory.trainer_init(told, client=client, source=ModuleSource(module))
        assert client.acts == [("init", {"run": run, "scratch": "/scratch"})]
        engine.send_weights()
        train(module)
        engine.send_weights()
        assert len(client.acts) == 1  # all else by wisp's own routes
        assert server.acts == ["/wisp/init", "/wisp/update", "/wisp/update"]
        assert server.served == engine.step and server.run == run
        engine.shutdown()


def test_a_step_that_servers_refuse_is_an_error_and_the_next_brings_it(factory, info, run):
    module, client = model(), RecordingClient()
    engine = factory.trainer_init(info(rank=0, run=run), client=client, source=ModuleSource(module))
    client.refusal = RuntimeError("500: told to fail")
    with pytest.raises(wisp.UnavailableError, match="told to fail"):
        engine.send_weights()
    client.refusal = None
    train(module)
    engine.send_weights()
    assert client.acts[-1] == ("finish", str(engine.step))
    assert_published(run, module)
    engine.shutdown()


def test_a_trainer_that_died_between_commit_and_switch_is_caught_up_with(factory, info, run):
    module, dead = model(), RecordingClient()
    first = factory.trainer_init(info(rank=0, run=run), client=dead, source=ModuleSource(module))
    dead.refusal = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        first.send_weights()  # committed, and nothing more
    assert wisp.status(run).head.step == first.step
    train(module)
    client = RecordingClient()
    again = factory.trainer_init(info(rank=0, run=run), client=client, source=ModuleSource(module))
    again.send_weights()
    assert again.step == first.step + 1
    assert client.acts[-1] == ("finish", str(again.step))
    assert_published(run, module)
    again.shutdown()


def test_a_server_that_stays_away_ends_the_wait(factory, info, run):
    with ScriptedVllm(listening=False) as server:
        told = info(rank=0, run=run, patience=0, timeout=1)
        client = RecordingClient(server.url)
        engine = factory.trainer_init(told, client=client, source=ModuleSource(model()))
        with pytest.raises(wisp.UnavailableError, match="no server took step"):
            engine.send_weights()
        engine.shutdown()


def test_wrong_settings_are_named(factory, info, run):
    module, client = model(), RecordingClient()
    with pytest.raises(wisp.InvalidError, match="run"):
        info(rank=0, run="")
    with pytest.raises(wisp.InvalidError, match="source"):
        factory.trainer_init(info(rank=0, run=run), client=client)
    other = SimpleNamespace(backend="wisp", rank=0, is_sender=True)
    with pytest.raises(wisp.InvalidError, match="TrainerInfo"):
        factory.trainer_init(other, client=client, source=ModuleSource(module))

    class Away(RecordingClient):
        def init_weight_transfer_engine(self, init_info):
            raise OSError("connection refused")

    with pytest.raises(wisp.UnavailableError, match="connection refused.*--weight-transfer-config"):
        factory.trainer_init(info(rank=0, run=run), client=Away(), source=ModuleSource(module))


def test_a_source_that_is_split_over_ranks_is_refused(factory, info, run):
    class Split(WeightSource):
        def __iter__(self):
            yield "a", torch.zeros(2)
            yield "b", None

    engine = factory.trainer_init(info(rank=0, run=run), client=RecordingClient(), source=Split())
    with pytest.raises(wisp.InvalidError, match="'b'.*ShardedPublisher"):
        engine.send_weights()


def test_the_run_of_another_model_is_left_alone(factory, info, run):
    with wisp.Publisher(run, {"other": torch.zeros(3)}, on_error="raise") as publisher:
        publisher.publish()
    client = RecordingClient()
    engine = factory.trainer_init(
        info(rank=0, run=run), client=client, source=ModuleSource(model())
    )
    with pytest.raises(wisp.InvalidError, match="does not fit"):
        engine.send_weights()
    assert [act[0] for act in client.acts] == ["init"]
    assert wisp.status(run).head.step == 0


def test_of_two_trainers_on_one_run_the_older_is_stopped(factory, info, run):
    module = model()
    engines = [
        factory.trainer_init(info(rank=0, run=run), client=RecordingClient(), source=source)
        for source in (ModuleSource(module), ModuleSource(module))
    ]
    engines[0].send_weights()
    train(module)
    engines[1].send_weights()
    train(module)
    with pytest.raises(wisp.FencedError):
        engines[0].send_weights()
    assert engines[0].client.acts[-1] == ("finish", str(engines[0].step))
    engines[1].send_weights()
    engines[1].shutdown()


def test_a_vllm_without_a_place_for_wisp_is_a_line_in_the_log(monkeypatch, factory, caplog):
    """Every part that is missing is named, and nothing is raised."""
    import wisp.vllm

    monkeypatch.setenv("WISP_ENGINE_ID", "")
    with caplog.at_level(logging.WARNING, "wisp.engine"):
        wisp.vllm.register()
        wisp.vllm.register()
    assert "wisp" in sys.modules["vllm.distributed.weight_transfer"] \
        .WeightTransferEngineFactory._registry  # fmt: skip
    assert "the routes /wisp of wisp cannot be had with vLLM 0.99" in caplog.text
    assert "it is made for 0.26, 0.29, 0.32" in caplog.text
    for name in [name for name in sys.modules if name == "vllm" or name.startswith("vllm.")]:
        monkeypatch.setitem(sys.modules, name, None)  # importing it fails
    wisp.vllm.register()


# --- SkyRL


def skyrl_settings(run, tmp_path, **changes):
    """As DeltaTrainerInitInfo of SkyRL 0.4 has them."""
    return SimpleNamespace(**{
        "backend": "delta", "rank": 0, "is_sender": True, "sync_dir": run,
        "base_model_path": str(tmp_path / "model"), "publish_num_workers": None,
        "local_checkpoint_dir": str(tmp_path / "local"), "max_file_size_in_gb": 1.0,
        "publish_staging_dir": str(tmp_path / "staging"), "cloud_download_workers": 4,
        "checkpoint_load_format": "vllm_multi_thread_safetensors",
        "multi_thread_safetensors_max_workers": 8, **changes,
    })  # fmt: skip


class SkyrlClient(RecordingClient):
    """`_urls` is where SkyRL 0.4's client keeps its servers."""

    def __init__(self, urls):
        super().__init__()
        self._urls = urls

    def reset_prefix_cache(self, reset_running_requests=True):
        self.acts.append(("reset", reset_running_requests))


@pytest.fixture
def skyrl(monkeypatch, factory):
    import wisp.skyrl

    monkeypatch.setenv("WISP_BACKENDS", "")
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    return wisp.skyrl


def test_skyrl_finds_wisp_where_it_looks_for_delta(skyrl, factory, run, tmp_path, caplog):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "model" / "model.safetensors").write_text("weights")
    skyrl.register()
    skyrl.register()
    assert not caplog.text
    module = model()
    with ScriptedVllm() as server:
        client = SkyrlClient([server.url])
        engine = factory.trainer_init(
            skyrl_settings(run, tmp_path), client=client, source=Gathered(module)
        )
        engine.skyrl_draft_source = None
        assert client.acts == [("init", {"run": run, "scratch": str(tmp_path / "local")})]
        assert engine.skyrl_handles_prefix_cache_reset and engine.skyrl_empty_cache_after_send
        assert not engine.skyrl_force_disable_expandable_segments
        engine.send_weights()
        engine.skyrl_set_reset_prefix_cache(True)
        train(module)
        engine.send_weights()
        assert client.acts[1:] == [("reset", True)]
        assert server.served == engine.step
        assert_published(run, module)
        engine.shutdown()
    wisp.export(run, tmp_path / "export")
    assert {path.name for path in (tmp_path / "export").iterdir()} >= {
        "config.json", "model.safetensors",
    }  # fmt: skip


def test_another_skyrl_is_named(skyrl, factory, run, tmp_path):
    skyrl.register()
    settings = skyrl_settings(run, tmp_path)
    del settings.sync_dir
    with pytest.raises(wisp.InvalidError, match="sync_dir.*SkyRL 0.4"):
        factory.trainer_init(settings, client=SkyrlClient([]), source=ModuleSource(model()))


def test_ray_starts_processes_in_which_delta_is_wisp(skyrl, monkeypatch):
    told = skyrl.runtime_env({"env_vars": {"A": "1"}, "working_dir": "."})
    assert told == {
        "env_vars": {"A": "1", "WISP_BACKENDS": "delta"}, "working_dir": ".",
        "worker_process_setup_hook": "wisp.skyrl.register",
    }  # fmt: skip
    assert skyrl.runtime_env(told) == told
    monkeypatch.setenv("WISP_BACKENDS", "other")
    assert skyrl.runtime_env(None)["env_vars"] == {"WISP_BACKENDS": "other,delta"}
    with pytest.raises(wisp.InvalidError, match="wisp.skyrl.register"):
        skyrl.runtime_env({"worker_process_setup_hook": "theirs.setup"})


def test_what_skyrl_registered_first_stays_its_own_aloud(skyrl, factory, caplog):
    factory.register_engine("delta", object)
    skyrl.register()
    assert "weights do not go through wisp" in caplog.text
    assert factory.engine_of("delta") is object


def test_something_is_done_when_a_module_is_imported(tmp_path, monkeypatch):
    from wisp.frameworks.when_imported import when_imported

    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    (tmp_path / "imported_later.py").write_text("value = 1")
    seen = []
    when_imported("imported_later", lambda: seen.append(sys.modules["imported_later"].value))
    when_imported("imported_later", lambda: 1 / 0)
    assert seen == []
    import imported_later

    assert seen == [1]
    assert type(imported_later.__spec__.loader).__module__ == "_frozen_importlib_external"
    when_imported("imported_later", lambda: seen.append(2))
    assert seen == [1, 2]
    monkeypatch.delitem(sys.modules, "imported_later")
