"""What a person sees who sits at a terminal: bars, what is waited for, colours, a pager; and no pipe ever does."""

import json
import os
import re
import subprocess

import numpy as np
import pytest

import checkpoints
import runs
import slow_s3
import st
from run_wisp import BINARY, ERROR, OK, USAGE, refused, run, wisp
from terminal import Terminal, at_terminal

RUN = "s3://bucket/run"
BAR = r"{} +■*·* +\d+ %  [\d.]+ \w+ of [\d.]+ \w+, [\d.]+ \w*B/s, \d+ s left"


@pytest.fixture
def slow():
    with slow_s3.SlowS3() as server:
        yield server


@pytest.fixture
def published(slow, tmp_path):
    """A run of two steps in the slow bucket, which is quick so far."""
    states = checkpoints.write_chain(tmp_path, steps=2).states
    wisp("init", RUN, "--no-probe", env=slow.environment())
    for state in states[:2]:
        wisp("publish", RUN, state, "--baseline", tmp_path / "baseline", env=slow.environment())
    return slow


def large(path):
    """Some megabytes that no codec makes smaller."""
    noise = np.random.default_rng(1).integers(0, 2**16, size=8_000_000, dtype=np.uint16)
    return st.save(path, {"weight": ("BF16", (8_000_000,), noise.tobytes())})


def test_sending_and_fetching_show_a_bar_with_rate_and_time_left(slow, tmp_path):
    model = large(tmp_path / "model.safetensors")
    wisp("init", RUN, "--no-probe", env=slow.environment())
    slow.bytes_per_second = 5_000_000
    with Terminal(BINARY, "publish", RUN, model, "--baseline", tmp_path / "b", env=slow.environment()) as sent:
        sent.until(BAR.format("upload"))
        sent.end()
        assert sent.code == OK, sent.text
        # Taken away before the result stands there.
        assert sent.screen.splitlines()[-1].split("\x1b[K")[-1].startswith("step 0, seq 2"), sent.screen
    with Terminal(BINARY, "pull", RUN, "--into", tmp_path / "into", env=slow.environment()) as fetched:
        fetched.until(BAR.format("fetch"))
        fetched.end()
        assert fetched.code == OK, fetched.text
    assert runs.holds(tmp_path / "into", model)
    wisp("pull", RUN, "--into", tmp_path / "again", env=slow.environment())


def test_no_line_is_drawn_where_nobody_sits(published, tmp_path):
    published.delay = 0.4
    for more in ((), ("-q",)):
        done = run("status", RUN, *more, env=published.environment())
        assert done.code == OK and "\r" not in done.err + done.out and "\x1b" not in done.err + done.out
    with Terminal(BINARY, "status", RUN, "-q", env=published.environment()) as quiet:
        assert quiet.end() == ""


def test_a_line_never_wraps(slow, tmp_path):
    model = large(tmp_path / "model.safetensors")
    wisp("init", RUN, "--no-probe", env=slow.environment())
    slow.bytes_per_second = 8_000_000
    with Terminal(BINARY, "publish", RUN, model, "--baseline", tmp_path / "b", columns=40,
                  env=slow.environment()) as narrow:
        narrow.until("upload")
        drawn = narrow.end().split("\r\n")[0]
    frames = [frame for frame in re.split(r"\r\x1b\[K", drawn) if frame.startswith(("upload", "waiting"))]
    assert frames and all(len(frame) < 40 for frame in frames), frames


def test_status_asks_at_once_and_says_what_it_waits_for(published):
    published.delay = 1.5
    published.under_way.clear()
    with Terminal(BINARY, "status", RUN, env={**published.environment(), "PAGER": "cat"}) as terminal:
        terminal.until(r"waiting for (read|list|ask|look) .* at s3://bucket.* and \d+ more, \d s")
        terminal.end()
        assert terminal.code == OK and "head      step 1" in terminal.text
    assert len(published.under_way) >= 9
    assert published.rounds() <= 3, published.under_way


def test_a_long_log_is_read_several_commits_at_a_time(slow, tmp_path):
    trainer = runs.Trainer(tmp_path)
    trainer.init()
    trainer.steps(20)
    for path in trainer.url.rglob("*"):
        if path.is_file():
            slow.objects[f"run/{path.relative_to(trainer.url)}"] = (path.read_bytes(), path.stat().st_mtime)
    slow.delay = 0.2
    lines = wisp("log", RUN, "--limit", 16, "--json", env=slow.environment()).json["commits"]
    newest = lines[0]["seq"]
    assert newest > 20 and [line["seq"] for line in lines] == list(range(newest, newest - 16, -1))
    assert slow.rounds() <= 10, slow.rounds()


def test_verbose_tells_each_request_and_each_phase(published, pair, tmp_path):
    done = wisp("status", RUN, "-v", env=published.environment())
    assert re.search(r"^wisp status: read run/format.json at s3://bucket.*: \d+ B, \d+ ms$", done.err, re.MULTILINE)
    assert re.search(r"^wisp status: list run/replicas/ at .*: 0 objects, ", done.err, re.MULTILINE)
    assert done.out == wisp("status", RUN, env=published.environment()).out or "ago" in done.out
    told = wisp("status", RUN, "-v", "--json", "--log-format", "json", env=published.environment())
    assert all(json.loads(line)["level"] == "info" for line in told.err.splitlines()) and told.json["ok"]
    quick = wisp("diff", pair.old, pair.new, "-o", tmp_path / "delta", "--verbose")
    assert re.search(r"^wisp diff: diff: [\d.]+ kB in \d+ ms$", quick.err, re.MULTILINE), quick.err
    refused(USAGE, "status", RUN, "-v", "-q")


def test_colour_is_for_terminals_and_can_be_refused(tmp_path):
    trainer = runs.Trainer(tmp_path)
    trainer.init()
    trainer.steps(2)
    plain = {"PAGER": "cat"}
    coloured = at_terminal("status", trainer.url, env=plain)
    assert "\x1b[32mgreen\x1b[0m" in coloured.screen and "verdict   green" in coloured.text
    wrong = at_terminal("status", tmp_path / "none", env=plain)
    assert "\x1b[31mwisp status:\x1b[0m" in wrong.screen
    assert "\x1b[32m" in at_terminal("log", trainer.url, env=plain).screen
    assert "\x1b[32mpass" in at_terminal("doctor", tmp_path, "--quick").screen
    for refusal in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        screen = at_terminal("status", trainer.url, env={**plain, **refusal}).screen
        assert "\x1b[3" not in screen and "verdict   green" in screen
    assert "\x1b[32m" in at_terminal("status", trainer.url, env={**plain, "NO_COLOR": ""}).screen
    assert "\x1b" not in wisp("status", trainer.url).out


def test_a_long_log_is_paged_and_a_short_one_is_not(tmp_path):
    trainer = runs.Trainer(tmp_path)
    trainer.init()
    trainer.steps(14)
    own = {"PAGER": None, "WISP_PAGER": None, "LESS": None}
    short = at_terminal("log", trainer.url, rows=40, env=own)
    assert short.code == OK and len(re.findall("delta", short.text)) == 13
    with Terminal(BINARY, "log", trainer.url, rows=8, env=own) as long:
        long.until(r"seq.*\n.*14.*:")
        assert not re.search(r"\n +1 +1 ", long.text), "the whole log ran through"
        long.type("q")
        long.end()
        assert long.code == OK, long.text
    chosen = at_terminal("log", trainer.url, env={"PAGER": "false", "WISP_PAGER": "sed s/^/paged:/"})
    assert chosen.code == OK and chosen.text.count("paged:") == 17, chosen.text
    unpaged = at_terminal("log", trainer.url, rows=8, env={"PAGER": "cat", "WISP_PAGER": None})
    assert unpaged.text.count("delta") == 13
    # Who leaves in the middle has seen enough.
    assert at_terminal("log", trainer.url, env={"WISP_PAGER": "head -1"}).code == OK
    assert at_terminal("log", trainer.url, "--json", env={"WISP_PAGER": "false"}).text.startswith('{"verb":"log"')


def many_tensors(path):
    """`inspect --tensors` of it prints more than a pipe takes in ahead."""
    return st.save(path, {f"model.layers.{i}.self_attn.weight": ("BF16", (2,), bytes(4)) for i in range(5_000)})


def test_leaving_the_pager_in_the_middle_is_no_failure(tmp_path):
    model = many_tensors(tmp_path / "model.safetensors")
    assert len(wisp("inspect", model, "--tensors").out) > 200_000
    seen = at_terminal("inspect", model, "--tensors", env={"WISP_PAGER": "head -1"})
    assert seen.code == OK and len(seen.text.splitlines()) == 1, seen.text[-500:]
    # What a verb has to say by its exit code, it says.
    other = tmp_path / "other.safetensors"
    st.save(other, {f"model.layers.{i}.self_attn.weight": ("BF16", (2,), bytes([1] * 4)) for i in range(5_000)})
    differs = at_terminal("diff", model, other, env={"WISP_PAGER": "head -1"})
    assert differs.code == ERROR and len(differs.text.splitlines()) == 1, differs.text[-500:]
    # Without a pager nobody has left: what is not written is missing.
    with open("/dev/full", "w") as full:
        done = subprocess.run([BINARY, "inspect", model, "--tensors"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == ERROR and done.stderr == "wisp: cannot write the result to standard output\n"


def test_ctrl_c_in_the_pager_is_for_the_pager(tmp_path):
    model = many_tensors(tmp_path / "model.safetensors")
    own = {"PAGER": None, "WISP_PAGER": None, "LESS": None}
    with Terminal(BINARY, "inspect", model, "--tensors", rows=8, env=own) as shown:
        shown.until(":")
        for _ in range(3):
            shown.type("\x03")
        # It still reads the keys, though not those that come with an interrupt, and wisp still waits for it.
        while shown.goes_on():
            shown.type("q")
        shown.end()
        assert shown.code == OK, shown.text


def test_limit_and_n_are_the_same(tmp_path):
    trainer = runs.Trainer(tmp_path)
    trainer.init()
    trainer.steps(3)
    assert wisp("log", trainer.url, "--limit", 2).out == wisp("log", trainer.url, "-n", 2).out
    assert len(wisp("log", trainer.url, "-n2", "--json").json["commits"]) == 2


def test_diff_without_output_shows_what_changed_per_layer_and_says_so_by_its_code(pair, tmp_path):
    done = run("diff", pair.old, pair.new)
    assert done.code == ERROR and re.search(r"^layer 0 +[\d,]+ +[\d.]+ %", done.out, re.MULTILINE), done
    assert run("diff", pair.old, pair.old).code == OK
    assert run("diff", pair.old, tmp_path / "none").code == USAGE, "what went wrong is no difference"
    seen = at_terminal("diff", pair.old, pair.new, env={"PAGER": "cat"})
    assert seen.code == ERROR and "■" in seen.text
    assert sorted(os.listdir(tmp_path)) == sorted(os.listdir(pair.old.parent))
