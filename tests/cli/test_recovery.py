"""What an interrupted in-place apply leaves, the next one finishes or undoes, and says so."""

import fcntl
import hashlib
import os
import shutil

import numpy as np
import pytest

import journal
import st
from checkpoints import folder_tensors, write_folder
from run_wisp import DAMAGED, LOCKED, OK, answer, refused, run, snapshot, wisp

FINISHED = "an earlier apply was interrupted while writing: it was finished first"
UNDONE = "an earlier apply was interrupted before writing: nothing of it was kept"


class Torn:
    """A base whose in-place apply was interrupted after its journal was complete."""

    def __init__(self, folder, pair):
        self.pair, self.delta = pair, folder / "delta"
        wisp("diff", pair.old, pair.new, "-o", self.delta)
        self.base = shutil.copyfile(pair.old, folder / "base.safetensors")
        self.before, self.after = (np.frombuffer(p.read_bytes(), np.uint8)
                                   for p in (pair.old, pair.new))
        self.at = np.flatnonzero(self.before != self.after)
        self.states = [answer("verify", p)["state"] for p in (pair.old, pair.new)]
        self.path = journal.path_of(self.base)
        self.path.write_bytes(self.journal())

    def journal(self, base=None, result=None, name=None, offset=0):
        one = journal.record(0, offset, 1, self.at, self.before[self.at].tobytes(),
                             self.after[self.at].tobytes())
        files = [(name or self.base.name, self.base.stat().st_size)]
        return journal.journal(base or self.states[0], result or self.states[1], files, [one])

    def write_share(self, share):
        """As if the process had ended after writing this share of the changes."""
        mixed = self.before.copy()
        written = self.at[:int(share * self.at.size)]
        mixed[written] = self.after[written]
        self.base.write_bytes(mixed.tobytes())

    def is_new(self):
        return self.base.read_bytes() == self.pair.new.read_bytes()


@pytest.fixture
def torn(pair, tmp_path):
    return Torn(tmp_path, pair)


@pytest.mark.parametrize("extra", [[], ["--quick"]])
@pytest.mark.parametrize("share", [0, 0.01, 0.5, 0.99, 1])
def test_complete_journal_is_finished_whatever_was_written(torn, share, extra):
    torn.write_share(share)
    done = wisp("apply", torn.base, torn.delta, "--in-place", *extra)
    assert FINISHED in done.err
    assert torn.is_new() and not torn.path.exists()


def test_recovery_is_told_in_json_and_hidden_by_quiet(torn):
    assert answer("apply", torn.base, torn.delta, "--in-place")["recovery"] == "finished"
    shutil.copyfile(torn.pair.old, torn.base)
    torn.path.write_bytes(torn.journal())
    done = wisp("apply", torn.base, torn.delta, "--in-place", "-q")
    assert done.out == "" and done.err == "" and torn.is_new()
    assert answer("apply", torn.base, torn.delta, "--in-place")["recovery"] == "none"


def test_half_written_journal_is_dropped(torn, tmp_path):
    torn.path.rename(tmp_path / f".{torn.path.name}.Ab3xYz")
    done = wisp("apply", torn.base, torn.delta, "--in-place")
    assert UNDONE in done.err
    assert torn.is_new() and journal.unfinished_of(torn.base) == []


def test_journal_that_leads_elsewhere_is_undone_then_the_delta_applied(torn):
    torn.path.write_bytes(torn.journal(result="0" * 32))
    torn.write_share(0.5)
    assert answer("apply", torn.base, torn.delta, "--in-place")["recovery"] == "undone"
    assert torn.is_new() and not torn.path.exists()


def test_interrupted_apply_is_finished_even_when_the_next_delta_does_not_fit(torn, tmp_path):
    wisp("diff", torn.pair.old, torn.pair.old, "-o", tmp_path / "none")
    torn.write_share(0.5)
    run("apply", torn.base, tmp_path / "none", "--in-place")
    assert torn.is_new() and not torn.path.exists()


@pytest.mark.parametrize("flip", [0, 8, 24, 41, 60, 100, -40, -33, -1])
def test_damaged_journal_is_refused_and_kept(torn, tmp_path, flip):
    file = bytearray(torn.journal())
    file[flip] ^= 4
    torn.path.write_bytes(file)
    torn.write_share(0.5)
    refused(DAMAGED, "apply", torn.base, torn.delta, "--in-place", names=[torn.path],
            within=tmp_path)


@pytest.mark.parametrize("keep", [0, 7, 71, 72, 100, -1])
def test_cut_journal_is_refused_and_kept(torn, tmp_path, keep):
    torn.path.write_bytes(torn.journal()[:keep])
    refused(DAMAGED, "apply", torn.base, torn.delta, "--in-place", names=[torn.path],
            within=tmp_path)


def test_journal_of_another_file_or_past_the_end_is_refused(torn, tmp_path):
    for file in (torn.journal(name="else.safetensors"), torn.journal(offset=2**40),
                 torn.journal(offset=int(torn.base.stat().st_size) - 5)):
        torn.path.write_bytes(file)
        refused(DAMAGED, "apply", torn.base, torn.delta, "--in-place", names=["journal"],
                within=tmp_path)


def test_base_changed_since_the_interruption_is_refused_with_the_way_out(torn, tmp_path):
    changed = bytearray(torn.base.read_bytes())
    changed[-1] ^= 1
    assert len(changed) - 1 not in torn.at
    torn.base.write_bytes(changed)
    refused(DAMAGED, "apply", torn.base, torn.delta, "--in-place", names=[torn.base, torn.path])
    assert torn.path.exists()


def test_apply_to_an_output_does_not_trust_a_torn_base_in_silence(torn, tmp_path):
    torn.write_share(0.5)
    done = run("apply", torn.base, torn.delta, "-o", tmp_path / "out")
    if done.code == OK:
        assert (tmp_path / "out").read_bytes() == torn.pair.new.read_bytes()
    else:
        assert "journal" in done.err or "interrupted" in done.err, done.err


def test_diff_does_not_read_a_torn_checkpoint_in_silence(torn, tmp_path):
    torn.write_share(0.5)
    done = run("diff", torn.base, torn.pair.new, "-o", tmp_path / "d")
    assert "journal" in done.err or "interrupted" in done.err, done


def test_folder_is_finished_across_its_shards(pair, tmp_path):
    states = [st.load(p)[0] for p in (pair.old, pair.new)]
    old, new = (write_folder(tmp_path / n, t) for n, t in zip(("fold", "fnew"), states))
    wisp("diff", old, new, "-o", tmp_path / "delta")
    files, records = [], []
    for i, shard in enumerate(sorted(old.glob("*.safetensors"))):
        before, after = (np.frombuffer((f / shard.name).read_bytes(), np.uint8)
                         for f in (old, new))
        at = np.flatnonzero(before != after)
        files.append((shard.name, shard.stat().st_size))
        records.append(journal.record(i, 0, 1, at, before[at].tobytes(), after[at].tobytes()))
    digests = [answer("verify", f)["state"] for f in (old, new)]
    (old / ".wisp-journal").write_bytes(journal.journal(*digests, files, records))
    shutil.copyfile(new / files[0][0], old / files[0][0])
    done = answer("apply", old, tmp_path / "delta", "--in-place")
    assert done["recovery"] == "finished"
    assert folder_tensors(old) == states[1] and snapshot(old) == snapshot(new)


def test_journal_written_from_its_description_has_the_hash_it_asks_for(torn):
    file = torn.journal()
    assert file[-32:] == hashlib.sha256(file[40:-32] + file[8:40]).digest()


def test_base_locked_by_another_process_is_refused(pair, tmp_path):
    wisp("diff", pair.old, pair.new, "-o", tmp_path / "delta")
    folder = write_folder(tmp_path / "folder", st.load(pair.old)[0])
    for base in (pair.old, folder):
        held = os.open(base, os.O_RDONLY)
        fcntl.flock(held, fcntl.LOCK_EX)
        refused(LOCKED, "apply", base, tmp_path / "delta", "--in-place", names=[base],
                within=tmp_path)
        os.close(held)
        wisp("apply", base, tmp_path / "delta", "--in-place")

