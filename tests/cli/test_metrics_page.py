"""doc/metrics.md lists what is exposed, all of it; dashboards and alerts ask for nothing else."""

import json
import re
from pathlib import Path

import pytest

import runs
from test_run_follow import Following
from test_run_metrics import address_of, scrape

TREE = Path(__file__).resolve().parents[2]
NAME = re.compile(r"\bwisp_[a-z_]+\b")
PARTS = ("_bucket", "_sum", "_count")


def documented():
    """Every metric of the page, with its type where a table says it."""
    types = {}
    for line in (TREE / "doc/metrics.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        for name in re.findall(r"`(wisp_[a-z_]+)`", line):
            types.setdefault(name, None)
            if len(cells) > 3 and name in cells[1]:
                types[name] = cells[2]
    return types


def test_the_page_names_what_the_sources_make():
    sources = ["cli/metrics.cpp", "python/wisp/metrics.py", "python/wisp/vllm/metrics.py"]
    made = set()
    for source in sources:
        text = (TREE / source).read_text()
        names = set(re.findall(r'"(wisp_[a-z_]+)"', text))
        if source.endswith(".py"):
            # prometheus_client adds the ending of counters itself.
            counters = set(re.findall(r'(?:counter|CounterMetricFamily)\(\s*"(wisp_[a-z_]+)"', text))
            names = {name + "_total" if name in counters else name for name in names}
        made |= names
    assert made == set(documented())
    assert all(documented().values()), "a metric without its type"


@pytest.fixture
def followed(tmp_path):
    trainer = runs.Trainer(tmp_path)
    trainer.init("--no-probe")
    trainer.steps(2)
    with Following("follow", trainer.url, "--into", tmp_path / "replica", "--metrics", "127.0.0.1:0",
                   "--id", "gpu-1", "--poll", "20ms", "-q") as follower:
        follower.until(lambda e: e["event"] == "waiting")
        yield address_of(follower.process)


def test_a_follower_tells_what_the_page_says_and_nothing_else(followed):
    samples, text = scrape(followed)
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
    page = documented()
    assert {name: page.get(name) for name in types} == types
    assert "wisp_build_info" in types and "wisp_last_success_timestamp_seconds" in types
    assert not re.search(r"^(?!wisp_|#).", text, re.M), "noise of another library"
    for reason in ("corrupt", "unavailable", "denied"):
        (zero,) = [v for k, v in samples.items()
                   if k.startswith("wisp_faults_total{") and f'reason="{reason}"' in k]
        assert zero == 0
    assert any(k.startswith("wisp_verify_failures_total{") for k in samples)


def test_dashboard_and_alerts_ask_for_metrics_that_exist():
    dashboard = json.loads((TREE / "deploy/monitoring/grafana.json").read_text())
    asked = " ".join(target["expr"] for panel in dashboard["panels"] for target in panel["targets"])
    asked += (TREE / "deploy/monitoring/alerts.yaml").read_text()
    names = set(NAME.findall(asked))
    assert len(names) > 15
    for name in names:
        for part in PARTS:
            if name.endswith(part) and documented().get(name.removesuffix(part)) == "histogram":
                name = name.removesuffix(part)
        assert name in documented(), name


def test_every_alert_has_a_remedy_in_the_operations_page():
    alerts = re.findall(r"alert: (\w+)", (TREE / "deploy/monitoring/alerts.yaml").read_text())
    page = (TREE / "doc/operations.md").read_text()
    assert alerts and not [alert for alert in alerts if alert not in page]
