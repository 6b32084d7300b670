"""Pictures of a run are drawn from what is in the bucket."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("matplotlib")

import wisp  # noqa: E402
from wisp import plot  # noqa: E402


@pytest.fixture
def published(tmp_path):
    arrays = {f"model.layers.{i}.mlp.weight": np.zeros(1000, np.float32) for i in range(3)}
    arrays["lm_head.weight"] = np.zeros(500, np.float32)
    run = tmp_path / "run"
    with wisp.Publisher(run, arrays, anchor_every=3) as publisher:
        for step in range(6):
            publisher.publish(step)
            publisher.flush()
            for i in range(3):
                arrays[f"model.layers.{i}.mlp.weight"][: 10 * (i + 1)] += 1
            arrays["lm_head.weight"][0] += 1
    return run, publisher.stats


def test_a_run_is_drawn(tmp_path, published):
    run, stats = published
    figure = plot.run(run, stats=stats)
    figure.savefig(tmp_path / "run.png", dpi=50)
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
    titles = [panel.get_title(loc="left") for panel in figure.axes]
    assert titles[0] == "bytes per step" and "layer" in titles[1] and "time" in titles[2]
    grid = figure.axes[1].images[0].get_array()
    labels = [text.get_text() for text in figure.axes[1].get_yticklabels()]
    assert labels == ["lm_head", "layers.0", "layers.1", "layers.2"]  # numbered ones last
    assert grid.shape == (4, 5)
    assert np.allclose(grid[:, 0], [0.2, 1, 2, 3])


def test_an_empty_run_is_drawn(tmp_path):
    wisp.init(tmp_path / "run")
    assert len(plot.run(tmp_path / "run").axes) == 2


def test_layers_are_told_by_their_numbers():
    assert plot.layer_of("model.layers.12.self_attn.q_proj.weight") == "layers.12"
    assert plot.layer_of("transformer.h.0.ln_1.bias") == "h.0"
    assert plot.layer_of("model.embed_tokens.weight") == "embed_tokens"
    assert plot.layer_of("lm_head.weight") == "lm_head"
