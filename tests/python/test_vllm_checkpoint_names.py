"""What a live trainer of transformers publishes, real vLLM serves, whatever its module looks like.

    pytest tests/python/test_vllm_checkpoint_names.py
"""

from __future__ import annotations

import json

import pytest
from followed_engine import Engine

torch = pytest.importorskip("torch")
pytest.importorskip("vllm")

import fused_models  # noqa: E402
import wisp  # noqa: E402
import wisp.vllm  # noqa: E402
from wisp.vllm.offline import verify_offline  # noqa: E402

#: What vLLM alone does not load of what transformers saves.
NOT_SERVED = {
    "Gemma3": "it wants torchvision, and then 'vision_tower.vision_model.…', which transformers 5.19 "
    "saves as 'vision_tower.…'",
}
#: The class that published checkpoints name, where transformers saves another.
PUBLISHED = {"PhiMoE": "PhiMoEForCausalLM"}


@pytest.mark.parametrize("family", fused_models.FAMILIES)
def test_an_engine_follows_a_live_trainer(tmp_path, family):
    if family in NOT_SERVED:
        pytest.skip(f"vLLM 0.32 does not serve {family}: {NOT_SERVED[family]}")
    model = fused_models.make(family)
    model.save_pretrained(tmp_path / "served")
    config = tmp_path / "served" / "config.json"
    architecture = PUBLISHED.get(family, type(model).__name__)
    told = json.loads(config.read_text()) | {"architectures": [architecture]}
    config.write_text(json.dumps(told))
    run, side_files = tmp_path / "run", [config]
    with wisp.Publisher(run, model, side_files=side_files, on_error="raise") as publisher:
        publisher.publish(0)
        publisher.flush()
        engine = Engine(tmp_path / "served", run)
        try:
            before = engine.answers()
            fused_models.train_a_little(model, 1)
            publisher.publish(1)
            publisher.flush()
            assert wisp.vllm.update(engine.llm, 1, timeout=120)["served"] == 1
            assert verify_offline(engine.llm) == 0
            after = engine.answers()
            assert after != before
        finally:
            engine.close()
    wisp.export(run, tmp_path / "export")
    fresh = Engine(tmp_path / "export")
    try:
        assert fresh.answers() == after
    finally:
        fresh.close()
