"""The dashboard in a real browser, over a real run: what it shows is what the run is."""

import importlib.resources
import json
import os
import pathlib
import re
import shutil
import time
import urllib.error
import urllib.request

import numpy as np
import pytest

import long_run
import run_wisp
import runs as runs_of
import st
from conftest import first_line

ROOT = pathlib.Path(__file__).resolve().parents[2]

AXE = importlib.resources.files("axe_playwright_python") / "axe.min.js"
PHONE = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2, "has_touch": True}


def human_bytes(count):
    units, value = ["B", "kB", "MB", "GB"], float(count)
    while value >= 999.5 and len(units) > 1:
        value /= 1000
        units.pop(0)
    if units[0] == "B":
        return f"{count} B"
    return f"{value:.{max(0, 3 - len(str(int(value))))}f} {units[0]}"


def figure(page, name):
    return page.locator(f"[data-figure='{name}']").first.inner_text()


def ask(address, path):
    with urllib.request.urlopen(address + path, timeout=60) as answer:
        return json.load(answer)


def drawn(page):
    """Pictures are drawn when their box is measured."""
    page.wait_for_function("() => document.querySelectorAll('.chart svg').length > 0")


def keep_picture(page, name):
    """Where WISP_SCREENSHOTS says, for people to look at."""
    if folder := os.environ.get("WISP_SCREENSHOTS"):
        page.screenshot(path=f"{folder}/{name}.png", full_page=True)


def test_the_figures_are_those_of_the_run(watched, address, open_page):
    page = open_page(address)
    log = watched.log
    deltas = [line for line in log if line["delta_bytes"]]
    assert figure(page, "step") == str(log[0]["step"])
    mean = round(sum(line["delta_bytes"] for line in deltas) / len(deltas))
    assert figure(page, "delta-bytes") == human_bytes(mean)
    full = next((watched.trainer.url / "anchors").glob("*.safetensors")).stat().st_size
    assert figure(page, "full-bytes") == human_bytes(full)
    assert figure(page, "chain") == f"{len(log)} commits, unbroken"
    rows = page.locator("tr[data-seq]")
    assert rows.count() == len(log)
    for row, line in zip(rows.all(), log):
        cells = row.locator("td").all_inner_texts()
        assert cells[:3] == [str(line["seq"]), str(line["step"]), line["kind"]]
        assert cells[5] == line["hash"][:12]
    drawn(page)
    keep_picture(page, "run")


def test_a_step_in_detail(watched, address, open_page):
    page = open_page(address)
    line = next(line for line in watched.log if line["delta_bytes"])
    page.get_by_role("link", name=f"Step {line['step']} in detail").first.click()
    page.wait_for_selector("[data-figure='step-changed']")
    assert figure(page, "step-changed") == f"{line['changed_elements']:,}"
    assert figure(page, "step-bytes") == human_bytes(line["delta_bytes"])
    key = next((watched.trainer.url / "deltas").glob(f"step_{line['step']:06d}-*"))
    told = run_wisp.answer("inspect", key, "--tensors")
    rows = {row.get_attribute("data-tensor"): row.locator("td").all_inner_texts()
            for row in page.locator("tr[data-tensor]").all()}
    assert set(rows) == {tensor["name"] for tensor in told["tensors"]}
    for tensor in told["tensors"]:
        assert rows[tensor["name"]][1] == f"{tensor['changed_elements']:,}"
        bits = 8 * tensor["stored_bytes"] / tensor["changed_elements"]
        assert abs(float(rows[tensor["name"]][4]) - bits) < 0.006
    page.get_by_text("Counted.").wait_for()
    keep_picture(page, "step")
    counted = ask(address, f"api/runs/0/commits/{line['seq']}/exponents")["binades"]
    assert sum(b["changed"] for b in counted) == line["changed_elements"]
    assert sum(b["elements"] for b in counted) == line["total_elements"]


def test_exponents_are_those_of_the_state_before(watched, address):
    line = next(line for line in watched.log if line["delta_bytes"])
    states = watched.trainer.states
    expected = {}
    before, after = (st.load(states[step])[0] for step in (line["step"] - 1, line["step"]))
    for name, (dtype, _, old) in before.items():
        kind, shift = {"BF16": (np.uint16, 7), "F32": (np.uint32, 23)}[dtype]
        old, new = np.frombuffer(old, kind), np.frombuffer(after[name][2], kind)
        exponents = (old >> shift & 255).astype(int) - 127
        for binade in np.unique(exponents):
            here = exponents == binade
            counts = expected.setdefault(int(binade), [0, 0])
            counts[0] += int(here.sum())
            counts[1] += int((here & (old != new)).sum())
    counted = ask(address, f"api/runs/0/commits/{line['seq']}/exponents")["binades"]
    assert {b["binade"]: [b["elements"], b["changed"]] for b in counted} == expected


def test_a_new_commit_appears_and_a_dead_replica_turns_red(watched, address, open_page):
    process, heartbeat = watched.follow("rollout-a")
    page = open_page(address)
    page.wait_for_selector("tr[data-replica='rollout-a'][data-health='ok']")
    beats = ask(address, "api/runs/0/beats?after=0")
    (heard,) = [told["beats"] for told in beats["replicas"] if told["id"] == "rollout-a"]
    assert beats["kept_ms"] > 0 and heard and heard[-1][1] == 0, beats
    newer = ask(address, f"api/runs/0/beats?after={heard[-1][0]}")["replicas"]
    assert all(beat[0] > heard[-1][0] for told in newer for beat in told["beats"])
    page.evaluate("() => { window.notReloaded = true; }")
    watched.trainer.publish()
    head = watched.head
    page.wait_for_function(
        "step => document.querySelector(\"[data-figure='step']\").textContent === step",
        arg=str(head["step"]))
    page.wait_for_selector(f"tr[data-seq='{head['seq']}']")
    assert figure(page, "announcement") == f"Newest step {head['step']}"
    process.kill()
    process.wait()
    # Ten minutes later, as the store sees it.
    then = heartbeat.stat().st_mtime - 600
    os.utime(heartbeat, (then, then))
    badge = page.wait_for_selector("tr[data-replica='rollout-a'][data-health='dead'] .badge")
    assert badge.inner_text() == "silent"
    red, green, blue = [int(float(v)) for v in badge.evaluate(
        "b => getComputedStyle(b).color.match(/[\\d.]+/g).slice(0, 3)")]
    assert red > 2 * max(green, blue)
    assert page.evaluate("() => window.notReloaded") is True
    verdict = page.wait_for_selector("[data-figure='verdict'][data-severity='critical']").inner_text()
    told = run_wisp.answer("status", watched.trainer.url)["verdict"]
    assert told["severity"] == "critical" and told["concerns"][0]["cause"] == "replica_silent"
    assert "rollout-a" in verdict and "silent for 10 min" in told["text"] and "silent for 10 min" in verdict
    assert run_wisp.run("status", watched.trainer.url, "--check").code == 2
    drawn(page)
    keep_picture(page, "dead")


@pytest.mark.parametrize("look", ["light", "dark", "phone"])
def test_everybody_can_use_it(watched, address, open_page, look):
    options = PHONE if look == "phone" else {"color_scheme": look}
    seq = next(line["seq"] for line in watched.log if line["delta_bytes"])
    # The policy is lifted for the script that the test brings along.
    page = open_page(address, wait_for="main section svg", bypass_csp=True, **options)
    page.evaluate(AXE.read_text())
    for view, place in {"run": "#/", "step": f"#/step/{seq}", "how": "#/how"}.items():
        page.evaluate("place => { window.location.hash = place; }", place)
        page.wait_for_selector({"run": "#heat-title", "step": "#tensors-title",
                                "how": "#pauses-title"}[view])
        drawn(page)
        width = page.evaluate("() => document.documentElement.scrollWidth - window.innerWidth")
        assert width <= 0, "the page is wider than the screen"
        found = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
        assert [(v["id"], v["nodes"][0]["html"]) for v in found["violations"]] == []
        keep_picture(page, f"{view}-{look}")


def test_the_keyboard_reaches_everything(address, open_page):
    page = open_page(address)
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("() => document.activeElement.id") == "main"
    page.get_by_role("button", name="Colours").focus()
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.documentElement.dataset.theme === 'dark'")
    page.get_by_role("link", name="How it works").focus()
    page.keyboard.press("Enter")
    slider = page.get_by_role("slider", name="Learning rate")
    slider.focus()
    before = figure(page, "rounding")
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    assert float(figure(page, "rounding").split()[0]) > float(before.split()[0])


def test_it_says_what_is_missing(watched, tmp_path, open_page):
    run_wisp.answer("init", tmp_path / "empty")
    process, address = watched.dashboard(url=tmp_path / "empty")
    page = open_page(address, forgiven=["Failed to load resource"])
    assert figure(page, "step") == "none yet"
    unknown = ask(address, "api/runs/0/run")
    assert {name for name, value in unknown.items() if value is None} >= {
        "head_step", "head_age_ms", "interval_ms", "full_bytes", "total_elements", "join_bytes", "join_objects"}
    assert figure(page, "full-bytes") == figure(page, "join") == "–"
    page.get_by_text("No weights were published yet").wait_for()
    process.terminate()
    assert process.wait(timeout=600) == 0
    page.get_by_role("alert").filter(has_text="is it still running").wait_for()
    run_wisp.refused(run_wisp.NO_RUN, "dashboard", tmp_path / "nothing", "--port", 0)


def test_old_data_stay_and_the_page_says_since_when(watched, tmp_path, open_page):
    run = tmp_path / "run"
    shutil.copytree(watched.trainer.url, run)
    _, address = watched.dashboard(url=run)
    page = open_page(address)
    step = figure(page, "step")
    run.rename(tmp_path / "away")
    alert = page.get_by_role("alert").filter(has_text="What is shown was read at")
    alert.wait_for()
    assert re.search(r"Since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", alert.inner_text())
    assert figure(page, "step") == step and page.locator("tr[data-seq]").count() > 0
    page.wait_for_selector("[data-figure='verdict'][data-severity='critical']")
    # A page that is opened meanwhile gets them too.
    again = open_page(address)
    assert figure(again, "step") == step
    (tmp_path / "away").rename(run)
    alert.wait_for(state="detached")


def test_a_step_that_is_not_there_is_explained(watched, address, open_page):
    page = open_page(address, forgiven=["Failed to load resource"])
    anchor = next(line for line in watched.log if line["kind"] == "anchor")
    for seq, words in ((999_999, "There is no commit 999,999 yet"), (anchor["seq"], "is an anchor"),
                       (1, "which changes no weights")):
        page.evaluate("seq => { window.location.hash = `/step/${seq}`; }", seq)
        page.locator("[data-figure='missing']").filter(has_text=words).wait_for()


def test_two_dashboards_never_share_a_port(watched, address):
    port = address.rsplit(":", 1)[1].rstrip("/")
    for host in ("127.0.0.1", "0.0.0.0"):
        run_wisp.refused(run_wisp.LOCKED, "dashboard", watched.trainer.url, "--port", port, "--host", host,
                         names=["another program listens there", "--port"])


def test_several_runs_have_an_overview(watched, tmp_path, open_page):
    runs = tmp_path / "runs"
    runs.mkdir()
    shutil.copytree(watched.trainer.url, runs / "busy")
    run_wisp.answer("init", runs / "fresh")
    (runs / "notes").mkdir()
    (runs / "notes/readme.txt").write_text("no run")
    for urls in ([runs], [runs / "busy", runs / "fresh"]):
        process = watched.start("dashboard", *urls, "--port", 0, "--json")
        told = first_line(process)
        assert told["runs"] == 2
        page = open_page(told["address"], wait_for="tr[data-run]", forgiven=["Failed to load resource"])
        rows = {row.locator("th").inner_text(): row.inner_text() for row in page.locator("tr[data-run]").all()}
        assert set(rows) == {"busy", "fresh"} and "nothing was published yet" in rows["fresh"]
        page.get_by_role("link", name="busy").click()
        page.wait_for_selector("[data-figure='step']")
        assert figure(page, "step") == str(watched.head["step"])
        page.get_by_role("link", name="detail").first.click()
        page.wait_for_selector("[data-figure='step-changed']")
        page.get_by_role("link", name="All runs").click()
        page.wait_for_selector("tr[data-run]")
        process.terminate()
        assert process.wait(timeout=60) == 0
    run_wisp.refused(run_wisp.NO_RUN, "dashboard", runs / "notes", "--port", 0)


def test_ten_thousand_commits_open_at_once(watched, tmp_path, open_page):
    trainer = runs_of.Trainer(tmp_path)
    trainer.init("--no-probe")
    trainer.steps(3)
    long_run.lengthen(trainer.url, 10_000)
    began = time.monotonic()
    _, address = watched.dashboard(url=trainer.url)
    page = open_page(address)
    drawn(page)
    took = time.monotonic() - began
    print(f"opened after {took:.2f} s")
    # Some two seconds on a machine with nothing else to do; what reads all commits, or each twice, takes minutes.
    assert took < 300
    asked = len(re.findall(r"read \S*commits/", run_wisp.wisp("log", trainer.url, "-n", 500, "-v").err))
    assert 500 <= asked <= 520, "each commit that is shown is read once, and no other"
    assert figure(page, "step") == f"{10_000 - 2:,}"
    assert figure(page, "chain") == "500 commits, unbroken"


def test_answers_do_not_wait_for_a_compressor(address):
    for part in ("", "api/runs", "api/runs/0/commits?after=0"):
        asked = urllib.request.Request(f"{address}{part}", headers={"Accept-Encoding": "gzip, deflate, br"})
        with urllib.request.urlopen(asked) as answered:
            assert answered.headers["Content-Encoding"] is None
            assert len(answered.read()) == int(answered.headers["Content-Length"])


def test_figures_of_the_explainers_are_measured():
    results = ROOT / "bench/results"
    bucket = [json.loads(line) for line in (results / "bucket_epyc.jsonl").read_text().splitlines()]
    (publish,) = [line for line in bucket if line["bench"] == "publish"]
    (swift,) = [run for run in publish["runs"] if run["codec"] == "swift"]
    engines = [json.loads(line) for line in (results / "engines.jsonl").read_text().splitlines()]
    engine = [line for line in engines if line.get("codec") == "swift"][-1]
    expected = {
        "MODEL_BYTES": publish["model_bytes"], "DELTA_BYTES": swift["delta_bytes"],
        "CHANGED_SHARE": swift["changed_share"],
        "COMMIT_SECONDS": swift["committed_after_seconds"],
        "APPLY_SECONDS": swift["in_memory_seconds"],
        "ENGINE_BYTES": 2 * engine["parameters"], "ENGINE_CHANGED_SHARE": engine["share"],
        "PAUSE_SECONDS": engine["pause_ms"] / 1000, "LOADER_SECONDS": engine["vllm_patch_loader_ms"] / 1000,
    }
    text = (ROOT / "dashboard/src/measured.ts").read_text()
    shown = {name: float(value.replace("_", ""))
             for name, value in re.findall(r"export const (\w+) = ([\d._]+);", text)}
    assert shown == pytest.approx(expected)


def test_the_server_keeps_to_itself(address):
    about = ask(address, "api/runs/0/run")
    assert "hush-hush" not in json.dumps(about)
    strange = [urllib.request.Request(address + "api/runs/0/run", headers={"Host": host})
               for host in ("evil.example", "127.evil.example", "127.0.0.1.evil.example:80",
                            "127.1", "128.0.0.1", "[::2]", "")]
    for host in ("127.0.0.1", "127.9.8.7:80", "localhost", "[::1]:80"):
        request = urllib.request.Request(address + "api/runs/0/run", headers={"Host": host})
        urllib.request.urlopen(request, timeout=60).close()
    for request, code in [*((one, 403) for one in strange), (address + "api/runs/0/commits/999999", 404),
                          (address + "api/runs/0/commits?after=-1", 400), (address + "etc/passwd", 404),
                          (address + "api/runs/1/run", 404)]:
        with pytest.raises(urllib.error.HTTPError) as refusal:
            urllib.request.urlopen(request, timeout=60)
        assert refusal.value.code == code
    with urllib.request.urlopen(address, timeout=60) as page:
        assert "default-src 'none'" in page.headers["Content-Security-Policy"]


def test_reports(watched, tmp_path, open_page):
    told = run_wisp.answer("report", watched.trainer.url, "-o", tmp_path / "report.html",
                           "--work", tmp_path)
    assert told["commits"] == len(watched.log)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html"]
    page = open_page((tmp_path / "report.html").as_uri())
    assert figure(page, "step") == str(watched.head["step"])
    line = next(line for line in watched.log if line["delta_bytes"])
    page.get_by_role("link", name=f"Step {line['step']} in detail").first.click()
    page.get_by_text("Counted.").wait_for()
    assert figure(page, "step-changed") == f"{line['changed_elements']:,}"
    run_wisp.answer("report", watched.trainer.url, "-o", tmp_path / "report.svg")
    page = open_page((tmp_path / "report.svg").as_uri(), wait_for="svg")
    assert page.get_by_text("Bytes on the wire").is_visible()
    assert page.get_by_text("Share of each layer that changed").is_visible()
    assert page.locator("rect").count() > len(watched.log)
    keep_picture(page, "report")
    run_wisp.refused(run_wisp.USAGE, "report", watched.trainer.url, "-o", tmp_path / "report.pdf")
