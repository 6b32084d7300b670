"""What wisp.Publisher and the vLLM plugin tell Prometheus."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path

import numpy as np
import pytest

import wisp

prometheus_client = pytest.importorskip("prometheus_client")


def scrape(url: str) -> dict[str, float]:
    with urllib.request.urlopen(url, timeout=60) as reply:
        text = reply.read().decode()
    assert not re.search(r"^(?!wisp_|#).", text, re.M), text
    return dict(
        (key, float(value))
        for key, value in (line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
    )


def test_a_publisher_serves_what_it_does(tmp_path: Path) -> None:
    run = str(tmp_path / "run")
    weights = {"w": np.zeros(1000, np.float32)}
    with wisp.Publisher(run, weights, metrics="127.0.0.1:0") as publisher:
        url = publisher.metrics_url
        assert url is not None and url.startswith("http://127.0.0.1:")
        before = scrape(url)
        assert before[f'wisp_publish_failures_total{{reason="unavailable",run="{run}"}}'] == 0
        assert before[f'wisp_published_total{{run="{run}"}}'] == 0
        publisher.publish(1)
        weights["w"][3] = 1
        publisher.publish(2)
        publisher.flush()
        after = scrape(url)
        assert after[f'wisp_published_total{{run="{run}"}}'] == 2
        assert after[f'wisp_published_step{{run="{run}"}}'] == 2
        assert after[f'wisp_uploaded_bytes_total{{run="{run}"}}'] > 0
        assert after[f'wisp_publish_seconds_count{{phase="diff",run="{run}"}}'] == 2
        assert after[f'wisp_last_success_timestamp_seconds{{run="{run}"}}'] > 1.7e9
        assert any(key.startswith("wisp_build_info{") and wisp.__version__ in key for key in after)
    with pytest.raises(OSError):
        urllib.request.urlopen(url, timeout=60)


def test_failures_are_counted_by_reason(tmp_path: Path) -> None:

    registry = prometheus_client.CollectorRegistry()
    run = tmp_path / "run"
    with wisp.Publisher(str(run), {"w": np.zeros(10)}, metrics=registry) as publisher:
        publisher.publish(1)
        publisher.flush()
        hidden = run.rename(tmp_path / "hidden")
        run.write_text("no folder any more")
        publisher.publish(2)
        with pytest.raises(wisp.Error):
            publisher.flush()
        _ = publisher.stats
        counted = [
            sample.value
            for family in registry.collect()
            for sample in family.samples
            if sample.name == "wisp_publish_failures_total"
        ]
        assert sum(counted) >= 1
        run.unlink()
        hidden.rename(run)


def test_publishers_of_one_program_share_a_registry(tmp_path: Path) -> None:
    registry = prometheus_client.CollectorRegistry()
    for name in ("a", "b"):
        with wisp.Publisher(tmp_path / name, {"w": np.zeros(10)}, metrics=registry) as publisher:
            publisher.publish(7)
            publisher.flush()
            assert publisher.metrics_url is None
    steps = {
        sample.labels["run"]: sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "wisp_published_step"
    }
    assert set(steps.values()) == {7} and len(steps) == 2


@pytest.mark.parametrize("address", ["9400", ":x", ":70000", ""])
def test_addresses_that_are_none_are_refused(tmp_path: Path, address: str) -> None:
    if address == "":
        wisp.Publisher(tmp_path / "run", {"w": np.zeros(10)}, metrics=address).close()
        return
    with pytest.raises(wisp.InvalidError, match="9400"):
        wisp.Publisher(tmp_path / "run", {"w": np.zeros(10)}, metrics=address)


def test_the_vllm_plugin_tells_its_switches() -> None:
    pytest.importorskip("vllm")
    from wisp.vllm.metrics import SwitchMetrics, _StatusCollector

    switches = SwitchMetrics()
    registry = prometheus_client.CollectorRegistry()
    registry.register(_StatusCollector(lambda: {"served": 4, "expired": False}, switches))
    text = prometheus_client.generate_latest(registry).decode()
    assert "wisp_applied_total 0.0" in text and "wisp_faults_total 0.0" in text
    assert "wisp_last_success" not in text and "wisp_replica_step 4.0" in text
    switches.switched(0.03)
    switches.refused()
    text = prometheus_client.generate_latest(registry).decode()
    assert "wisp_applied_total 1.0" in text and "wisp_faults_total 1.0" in text
    assert 'wisp_server_pause_seconds_bucket{le="0.02"} 0.0' in text
    assert 'wisp_server_pause_seconds_bucket{le="0.05"} 1.0' in text
    assert "wisp_server_pause_seconds_sum 0.03" in text and "wisp_last_success" in text
