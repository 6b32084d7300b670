"""Completion, asked for by the shells themselves: bash, zsh and fish, each of them real."""

import re
import shutil
import subprocess

import pytest

from run_wisp import BINARY, environment, run, wisp
from terminal import Terminal
from test_command_line import VERBS

CODECS = {"compact", "swift", "plain", "gap"}


@pytest.fixture
def at_work(tmp_path):
    """A folder with something to complete, and the binary found by name."""
    (tmp_path / "runs").mkdir()
    (tmp_path / "model.safetensors").write_bytes(b"")
    (tmp_path / "with space.safetensors").write_bytes(b"")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "wisp").symlink_to(BINARY)
    return tmp_path


def installed(shell):
    path = shutil.which(shell)
    assert path, f"{shell} is missing; tools/setup.sh test installs it"
    return path


def settings(folder):
    own = environment({"LC_ALL": "C.UTF-8", "HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "TERM": "xterm"})
    return {**own, "PATH": f"{folder / 'bin'}:{own['PATH']}"}


def offered_by_bash(folder, line, wanted=None):
    """As readline would call it: words taken apart at '=' and ':', too."""
    words = re.findall(r"[=:]|[^\s=:]+", line) + ([""] if line.endswith(" ") else [])
    listing = " ".join(f"'{word}'" for word in words)
    program = (f'eval "$(wisp completion bash)"\nCOMP_WORDS=({listing}); COMP_CWORD={len(words) - 1}\n_wisp\n'
               'printf "%s\\n" "${COMPREPLY[@]}"')
    done = subprocess.run([installed("bash"), "--norc", "-c", program], capture_output=True, text=True, check=True,
                          cwd=folder, env=settings(folder))
    assert not done.stderr, done.stderr
    return set(done.stdout.splitlines()) - {""}


def offered_by_fish(folder, line, wanted=None):
    program = f"wisp completion fish | source; complete -C '{line}'"
    done = subprocess.run([installed("fish"), "--no-config", "-c", program], capture_output=True, text=True,
                          check=True, cwd=folder, env=settings(folder))
    return {word.partition("\t")[0] for word in done.stdout.splitlines()}


# What may be read off a screen; what was typed is there, too.
KNOWN = {*VERBS, "help", *CODECS, "json", "text", "new", "show", "certify", "--in-place", "--output", "--json",
         "--verbose", "--codec", "runs", "bin", "model.safetensors"}


def seen_in(text):
    return {word for word in KNOWN if re.search(rf"(?<![\w./-]){re.escape(word)}(?![\w.-])", text)}


def offered_by_zsh(folder, line, wanted):
    """At a terminal, since zsh completes only for somebody who types; until what is wanted is seen, and with it all else."""
    with Terminal(installed("zsh"), "-f", "-i", cwd=folder, columns=200, rows=60, env=settings(folder)) as shell:
        shell.type("PS1=; unsetopt beep; LISTMAX=9999; autoload -Uz compinit; compinit -u -D;"
                   " eval \"$(wisp completion zsh)\"; echo rea''dy\n")
        before = len(shell.until("ready\r"))
        shell.type(f"{line}\t")
        text = shell.until_true(lambda text: wanted <= seen_in(text[before:]), wanted)
    return seen_in(text[before:]) - (set(line.split()) - wanted)


SHELLS = {"bash": offered_by_bash, "zsh": offered_by_zsh, "fish": offered_by_fish}


@pytest.mark.parametrize("shell", SHELLS)
class TestShells:
    def test_offers_verbs(self, shell, at_work):
        wanted = {*VERBS, "help"}
        assert wanted <= SHELLS[shell](at_work, "wisp ", wanted)

    def test_offers_verbs_that_begin_so(self, shell, at_work):
        assert SHELLS[shell](at_work, "wisp ap", {"apply"}) == {"apply"}

    def test_offers_the_options_of_the_verb(self, shell, at_work):
        wanted = {"--in-place", "--output", "--json", "--verbose"}
        found = SHELLS[shell](at_work, "wisp apply --", wanted)
        assert wanted <= found and "--codec" not in found

    def test_offers_the_values_of_an_option(self, shell, at_work):
        assert SHELLS[shell](at_work, "wisp diff a b --codec ", CODECS) == CODECS

    def test_offers_what_a_value_begins_with(self, shell, at_work):
        assert SHELLS[shell](at_work, "wisp follow run --log-format j", {"json"}) == {"json"}

    def test_offers_the_verbs_below_a_verb(self, shell, at_work):
        wanted = {"new", "show", "certify"}
        assert SHELLS[shell](at_work, "wisp key ", wanted) == wanted

    def test_offers_folders_where_a_run_is_wanted(self, shell, at_work):
        found = {word.rstrip("/") for word in SHELLS[shell](at_work, "wisp status ", {"runs"})}
        assert "runs" in found and "model.safetensors" not in found

    def test_offers_files_where_a_checkpoint_is_wanted(self, shell, at_work):
        wanted = {"model.safetensors"}
        assert wanted <= SHELLS[shell](at_work, "wisp diff mod", wanted)


    def test_offers_folders_behind_an_equals_sign(self, shell, at_work):
        found = SHELLS[shell](at_work, "wisp follow run --into=ru", {"runs"} if shell != "fish" else None)
        assert {word.removeprefix("--into=").rstrip("/") for word in found} >= {"runs"}


def test_bash_completes_a_value_behind_an_equals_sign(at_work):
    assert offered_by_bash(at_work, "wisp diff --codec=s") == {"swift"}
    assert offered_by_bash(at_work, "wisp diff --codec=") == CODECS


def test_an_address_that_bash_takes_apart_is_one_argument(at_work):
    assert "model.safetensors" in offered_by_bash(at_work, "wisp publish s3://bucket/run mod")


def test_typing_completes_in_a_real_bash(at_work):
    with Terminal(installed("bash"), "--norc", "-i", cwd=at_work, env=settings(at_work)) as shell:
        shell.type('PS1=; bind "set bell-style none"; eval "$(wisp completion bash)"; echo rea""dy\n')
        shell.until("ready\r")
        shell.type("wisp diff --cod\tsw\t with\\ s\t --help >/dev/null; echo do''ne\n")
        shell.until(r"wisp diff --codec swift +with\\ space.safetensors +--help.*done")


@pytest.mark.parametrize("words, offered", [
    (["diff", "--threads", ""], set()),
    (["publish", "run", "--anchor-every", ""], {"auto"}),
    (["publish", "run", "--anchor-every=a"], {"--anchor-every=auto"}),
    (["completion", ""], {"bash", "zsh", "fish"}),
    (["help", "ap"], {"apply"}),
    (["status", "--check", "--che"], set()),
    (["follow", "run", "--layout", ""], {"wisp", "trl"}),
    (["nonsense", "--"], {"--help", "--version"}),
])
def test_what_comes_next(words, offered):
    kind, *lines = wisp("__complete", *words).out.splitlines()
    assert kind == ":words" and {line.partition("\t")[0] for line in lines} == offered


def test_every_option_with_fixed_words_offers_them():
    seen = set()
    for verb in VERBS:
        for option, words in re.findall(r"(--[\w-]+) \w+:\{([\w,-]+)\}", run(verb, "--help").out):
            found = wisp("__complete", verb, option, "").out.splitlines()
            seen.add(option)
            assert {line.rstrip("\t") for line in found[1:]} == set(words.split(",")), (verb, option)
    assert seen >= {"--codec", "--layout", "--log-format"}
