"""Keys on the command line: made once, kept private, shown, certified."""

import os
import stat
import time

import pytest

from run_wisp import DAMAGED, DENIED, ERROR, USAGE, answer, refused, wisp

DAY_MS = 86_400_000


@pytest.fixture
def keys(tmp_path):
    for name in ("root", "trainer"):
        wisp("key", "new", tmp_path / f"{name}.key")
    return tmp_path


def certify(keys, *more, root="root.key", subject="trainer.key.pub", expires="30d", serial=1):
    return ["key", "certify", "--root", keys / root, "--subject", keys / subject,
            "--expires", expires, "--serial", serial, *more]


def test_new_key_is_private_and_its_public_half_lies_beside_it(tmp_path):
    old = os.umask(0)
    try:
        told = answer("key", "new", tmp_path / "k")
    finally:
        os.umask(old)
    assert told["verb"] == "key new" and told["public_file"] == str(tmp_path / "k.pub")
    assert stat.S_IMODE((tmp_path / "k").stat().st_mode) == 0o600
    assert (tmp_path / "k").read_text().startswith("-----BEGIN PRIVATE KEY-----")
    assert (tmp_path / "k.pub").read_text() == told["public"] + "\n"
    assert len(told["id"]) == 16 and told["public"].startswith("ed25519:")


def test_new_key_never_overwrites_either_file(keys):
    refused(ERROR, "key", "new", keys / "root.key", names=["never overwritten"], within=keys)
    (keys / "root.key").rename(keys / "elsewhere")
    refused(ERROR, "key", "new", keys / "root.key", names=["root.key.pub"], within=keys)
    (keys / "root.key.pub").unlink()
    (keys / "root.key").symlink_to("nowhere")
    refused(ERROR, "key", "new", keys / "root.key", names=["root.key"], within=keys)
    assert not (keys / "root.key.pub").exists()


def test_show_agrees_on_private_file_public_file_and_text(keys):
    shown = answer("key", "show", keys / "root.key")
    assert shown["kind"] == "private"
    for other in (keys / "root.key.pub", shown["public"]):
        again = answer("key", "show", other)
        assert (again["id"], again["public"]) == (shown["id"], shown["public"])
        assert again["kind"] == "public"
    assert wisp("key", "show", keys / "root.key.pub").out == f"{shown['id']} {shown['public']}\n"


def test_private_half_is_never_printed(keys):
    secret = (keys / "root.key").read_text().splitlines()[1]
    (keys / "open.key").write_text((keys / "root.key").read_text())
    (keys / "open.key").chmod(0o644)
    runs = [wisp("key", "show", keys / "root.key"), wisp(*certify(keys)),
            refused(DENIED, "key", "show", keys / "open.key"),
            refused(ERROR, *certify(keys, subject="root.key"), names=["private key"])]
    assert all(secret not in done.out + done.err for done in runs)


def test_key_that_others_may_read_is_refused(keys):
    (keys / "root.key").chmod(0o640)
    for arguments in (["key", "show", keys / "root.key"], certify(keys)):
        refused(DENIED, *arguments, names=["root.key", "chmod 600"], within=keys)


def test_certificate_names_subject_serial_expiry_and_root(keys):
    before = time.time() * 1000
    told = answer(*certify(keys, serial=7))
    root, trainer = (answer("key", "show", keys / f"{name}.key") for name in ("root", "trainer"))
    assert told["id"] == trainer["id"] and told["root"] == root["id"] and told["serial"] == 7
    assert -1000 < told["expires_ms"] - before - 30 * DAY_MS < 60_000
    fields = told["certificate"].split(" ")
    assert fields[:2] == ["wisp-cert", "1"] and "ed25519:" + fields[2] == trainer["public"]
    assert fields[3:6] == ["7", str(told["expires_ms"]), root["id"]] and len(fields[6]) == 128


def test_certificate_is_printed_or_written_and_can_be_renewed(keys):
    assert wisp(*certify(keys)).out.startswith("wisp-cert 1 ")
    cert = keys / "trainer.cert"
    assert "certifies" in wisp(*certify(keys, "-o", cert)).out
    assert wisp(*certify(keys, "-o", cert, "-q", serial=2)).out == ""
    shown = answer("key", "show", cert)
    assert shown["kind"] == "certificate" and shown["serial"] == 2
    assert "29.9 days" in wisp("key", "show", cert).out or "30.0 days" in wisp(
        "key", "show", cert).out
    cert.write_text(cert.read_text()[:-9])
    refused(DAMAGED, "key", "show", cert, names=["trainer.cert", "malformed"])


def test_certificate_replaces_no_other_file(keys):
    for name in ("trainer.key", "trainer.key.pub", "root.key"):
        refused(ERROR, *certify(keys, "-o", keys / name), names=[name, "not a certificate"],
                within=keys)


@pytest.mark.parametrize("text, days", [
    ("90s", 90 / 86400), ("15m", 15 / 1440), ("1h", 1 / 24), ("30d", 30), ("36500d", 36500),
    ("86400000ms", 1)])
def test_durations_mean_what_they_say(keys, text, days):
    before = time.time() * 1000
    expires = answer(*certify(keys, expires=text))["expires_ms"]
    assert -1000 < expires - before - days * DAY_MS < 60_000


@pytest.mark.parametrize("text", [
    "", "0", "0s", "30", "d", "-1d", "+1d", "1.5h", "1 d", "1D", "1y", "1d2h", "36501d",
    "4294967296s", "99999999999999999999d", "0x10s"])
def test_other_durations_are_wrong_usage(keys, text):
    refused(USAGE, *certify(keys, expires=text), names=["--expires"], within=keys)


@pytest.mark.parametrize("arguments", [
    [], ["frobnicate"], ["new"], ["show"], ["certify"], ["new", "a", "b"],
    ["certify", "--root", "r", "--subject", "s", "--expires", "1d"],
    ["certify", "--root", "r", "--subject", "s", "--expires", "1d", "--serial", "-1"],
    ["certify", "--root", "r", "--subject", "s", "--expires", "1d", "--serial", "x"]])
def test_wrong_usage_exits_with_2(arguments, tmp_path):
    refused(USAGE, "key", *arguments, cwd=tmp_path, within=tmp_path)


def test_what_is_no_key_is_named(keys):
    (keys / "junk").write_text("password=hunter2\n")
    for arguments in (["key", "show", keys / "junk"], certify(keys, subject="junk"),
                      certify(keys, root="junk2")):
        (keys / "junk2").write_text("junk\n")
        (keys / "junk2").chmod(0o600)
        done = refused(ERROR, *arguments, names=["junk"], within=keys)
        assert "hunter2" not in done.err
    refused(ERROR, "key", "show", "ed25519:1234", names=["64"])
    refused(ERROR, "key", "show", keys / "missing", names=["missing", "No such file"])
    refused(ERROR, "key", "show", keys, names=["not a regular file"])
    assert refused(ERROR, "key", "show", keys / "missing", "--json").json["verb"] == "key show"


@pytest.mark.parametrize("verb", ["new", "show", "certify"])
def test_help_ends_with_examples(verb):
    assert f"wisp key {verb}" in wisp("key", verb, "--help").out.split("Examples:")[1]


def test_completion_knows_the_verbs_of_key():
    def offered(*words):
        return {line.partition("\t")[0] for line in wisp("__complete", "key", *words).out.splitlines()[1:]}
    assert offered("") == {"new", "show", "certify"}
    assert offered("certify", "--su") == {"--subject"}
    assert "--subject" not in offered("new", "--")
