"""`cmake --install` puts things where programs, shells and readers look for them."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import pytest
import st

TREE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("WISP_BUILD", TREE / "build/release"))
EXAMPLES = TREE / "examples/cpp"


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=1500, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    place = tmp_path_factory.mktemp("installed") / "usr"
    run("cmake", "--install", BUILD, "--prefix", place, "--strip")
    return place


def publish_and_follow(folder, chain, tmp_path):
    """The examples do their work, so the library was linked with all that it needs."""
    published = run(folder / "publisher", tmp_path / "bucket", *chain.states[:2])
    assert published.startswith("step 0: ")
    run(folder / "follower", tmp_path / "bucket", tmp_path / "replica", 1)
    (held,) = (tmp_path / "replica").glob("*.safetensors")
    assert st.same_tensors(held, chain.states[1])


def test_find_package_finds_the_library(prefix, chain, tmp_path):
    built = tmp_path / "built"
    run("cmake", "-S", EXAMPLES, "-B", built, "-D", f"CMAKE_PREFIX_PATH={prefix}", "-D", "CMAKE_BUILD_TYPE=Release")
    run("cmake", "--build", built)
    publish_and_follow(built, chain, tmp_path)


def test_pkg_config_finds_the_library(prefix, chain, tmp_path):
    (pc,) = prefix.glob("lib/**/wisp.pc")
    asked = {**os.environ, "PKG_CONFIG_PATH": str(pc.parent)}
    flags = run("pkg-config", "--cflags", "--libs", "wisp", env=asked).split()
    for example in ("publisher", "follower"):
        run("g++", "-std=c++23", EXAMPLES / f"{example}.cpp", "-o", tmp_path / example, *flags)
    publish_and_follow(tmp_path, chain, tmp_path)


@pytest.fixture
def built():
    """A folder as deep in the tree as its own build: then the compiler's cache has what that compiled."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="install_test.", dir=TREE / "build"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def built_along():
    """A folder whose own folder for the library is as deep as that."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix=".install_test.", dir=TREE))
    yield folder
    shutil.rmtree(folder)


# The flags of the tree's own build, for the same reason.
AS_RELEASE = ("-D", "CMAKE_BUILD_TYPE=Release", "-D", "CMAKE_CXX_COMPILER=g++", "-D", "WISP_WERROR=ON")


@pytest.mark.slow
def test_make_install_puts_all_of_it_below_its_prefix(tmp_path):
    run("make", "-C", TREE, "install", f"PREFIX={tmp_path / 'usr'}")
    for place in ("bin/wisp", "include/wisp/publisher.hpp", "share/man/man1/wisp-publish.1",
                  "share/bash-completion/completions/wisp"):
        assert (tmp_path / "usr" / place).stat().st_size, place
    for pattern in ("lib/**/libwisp.a", "lib/**/wispConfig.cmake", "lib/**/wisp.pc"):
        assert list((tmp_path / "usr").glob(pattern)), pattern
    run(tmp_path / "usr/bin/wisp", "--version")


@pytest.mark.slow
def test_add_subdirectory_builds_the_library_along(built_along, chain, tmp_path):
    # By make, which compiles in the folder of the library: Ninja, in the topmost one, would give other paths to
    # the files that several sources are compiled in, and the cache would know none of them.
    run("cmake", "-G", "Unix Makefiles", *AS_RELEASE, "-S", EXAMPLES, "-B", built_along, "-D", f"WISP_SOURCE={TREE}")
    run("cmake", "--build", built_along)
    assert not (built_along / "wisp" / "bin").exists(), "a command that nobody asked for"
    publish_and_follow(built_along, chain, tmp_path)


@pytest.mark.slow
def test_a_library_built_alone_is_all_that_programs_need(built, chain, tmp_path):
    run("cmake", "-G", "Ninja", *AS_RELEASE, "-S", TREE, "-B", built, "-D", "WISP_CLI=OFF", "-D", "WISP_TESTS=OFF",
        "-D", "WISP_DASHBOARD=OFF", "-D", "WISP_METRICS=OFF")
    run("cmake", "--build", built)
    run("cmake", "--install", built, "--prefix", tmp_path / "usr")
    assert not (tmp_path / "usr/bin").exists()
    run("cmake", "-S", EXAMPLES, "-B", tmp_path / "examples", "-D", f"CMAKE_PREFIX_PATH={tmp_path / 'usr'}")
    run("cmake", "--build", tmp_path / "examples")
    publish_and_follow(tmp_path / "examples", chain, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("options, libraries, asked, offer", [
    # Metrics are served by the dashboard's library: it goes when both do.
    (["WISP_DASHBOARD"], [], ["--help"], "\n  dashboard "),
    (["WISP_METRICS"], ["prometheus"], ["follow", "--help"], "--metrics"),
    (["WISP_DASHBOARD", "WISP_METRICS"], ["cpp-httplib", "prometheus"], ["--help"], "\n  dashboard "),
], ids=["dashboard", "metrics", "both"])
def test_a_command_without_an_option_neither_links_nor_offers_it(built, chain, tmp_path, options, libraries, asked, offer):
    off = [part for option in options for part in ("-D", f"{option}=OFF")]
    run("cmake", "-G", "Ninja", *AS_RELEASE, "-S", TREE, "-B", built, *off, "-D", "WISP_TESTS=OFF")
    run("cmake", "--build", built, "--target", "wisp")
    wisp = built / "bin/wisp"
    whole = os.environ["WISP_BIN"]
    for library in libraries:
        assert library in run("ldd", whole) and library not in run("ldd", wisp), library
    assert offer in run(whole, *asked) and offer not in run(wisp, *asked)
    run(wisp, "init", tmp_path / "run")
    run(wisp, "publish", tmp_path / "run", chain.states[0], "--step", 0)
    run(wisp, "pull", tmp_path / "run", "--into", tmp_path / "replica")
    (held,) = (tmp_path / "replica").glob("*.safetensors")
    assert st.same_tensors(held, chain.states[0])


def test_the_library_alone_asks_for_no_command_line_libraries(tmp_path):
    done = run("cmake", "-S", TREE, "-B", tmp_path, "-D", "WISP_CLI=OFF", "-D", "CMAKE_DISABLE_FIND_PACKAGE_CLI11=ON",
               "-D", "CMAKE_DISABLE_FIND_PACKAGE_prometheus-cpp=ON")
    assert "HTTPLIB" not in (tmp_path / "CMakeCache.txt").read_text()
    assert "Configuring done" in done


def test_every_verb_has_a_manual_page_that_says_what_help_says(prefix):
    verbs = [line.split()[0] for line in run(prefix / "bin/wisp", "--help").split("Subcommands:")[1].splitlines()
             if line.startswith("  ") and not line.startswith("   ") and line.split()[0] != "wisp"]
    assert "publish" in verbs and "manual" not in verbs
    for verb in verbs:
        page = (prefix / f"share/man/man1/wisp-{verb}.1").read_text()
        assert page.startswith(f".TH wisp\\-{verb} 1 ")
        for word in run(prefix / "bin/wisp", verb, "--help").split():
            if word.startswith("--") and word[2:].isalpha():
                assert word.replace("-", "\\-") in page, (verb, word)
    assert "exit codes" in (prefix / "share/man/man1/wisp.1").read_text().lower()


def test_man_reads_the_pages_without_complaint(prefix):
    if not shutil.which("groff"):
        pytest.skip("groff is not installed")
    for page in (prefix / "share/man/man1").glob("*.1"):
        done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z", page], capture_output=True, text=True)
        assert done.returncode == 0 and not done.stderr, done.stderr


@pytest.mark.parametrize("shell, place", [
    ("bash", "share/bash-completion/completions/wisp"),
    ("zsh", "share/zsh/site-functions/_wisp"),
    ("fish", "share/fish/vendor_completions.d/wisp.fish"),
])
def test_completion_lies_where_the_shell_looks(prefix, shell, place):
    installed = (prefix / place).read_text()
    assert installed == run(prefix / "bin/wisp", "completion", shell)
    if shutil.which(shell):
        run(shell, "-n", prefix / place)


def test_version_names_the_commit():
    words = run(os.environ["WISP_BIN"], "--version").split()
    assert words[0] == "wisp" and words[1].count(".") == 2
    if (TREE / ".git").exists():
        commit = run("git", "-C", TREE, "log", "-50", "--format=%H").split()
        assert any(c.startswith(words[2].removesuffix("-dirty")) for c in commit)


def test_there_is_one_version():
    version = re.search(r"project\(wisp VERSION ([\d.]+)", (TREE / "CMakeLists.txt").read_text())[1]
    assert run(os.environ["WISP_BIN"], "--version").split()[1] == version
    chart = (TREE / "deploy/helm/wisp/Chart.yaml").read_text()
    assert f"\nversion: {version}\n" in chart and f'\nappVersion: "{version}"\n' in chart
    assert f"vllm-wisp:{version}" in (TREE / "deploy/helm/wisp/values.yaml").read_text()
    assert f"## [{version}]" in (TREE / "CHANGELOG.md").read_text()
