#!/usr/bin/env python3
"""The law of the tree: which layer may include which, how large files and folders may be, and how
things are named.

usage: tools/include_law.py [--self-test]
"""
import re
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

# The folders of src/, in the order they are read: each may include only those before it.
LAYERS = ("base", "kernel", "checkpoint", "codec", "delta", "web", "store", "log", "follow", "publish",
          "maintain", "observe", "engine", "trl")
# These need less than all before them, and are held to it: stores know names and bytes, a log knows
# objects and names of states, servers of engines know addresses and step numbers.
NARROW = {"web": {"base"}, "store": {"base", "web"}, "log": {"base", "checkpoint", "store"},
          "engine": {"base", "web"}}
LAW = {layer: NARROW.get(layer, set(LAYERS[:at])) for at, layer in enumerate(LAYERS)}
# The public headers: the first layer that may include each. Dtypes, schemas, digests and changes are
# plain values that the kernels work on. wisp.hpp is for those outside.
PUBLIC = {
    "base": {"control", "result", "signing", "step_folders"},
    "kernel": {"schema", "state"},
    "checkpoint": {"checkpoint", "weights"},
    "delta": {"delta", "inspect"},
    "store": {"hub", "store"},
    "log": {"run", "trust"},
    "follow": {"followed_folders", "follower", "relay", "replica"},
    "publish": {"async_publisher", "publisher", "shard", "sharded_publisher"},
    "maintain": {"maintenance"},
    "observe": {"history", "run_status", "verdict"},
    "engine": {"engine_driver"},
    "trl": {"trl_layout"},
}
LAYER_OF = {header: layer for layer, headers in PUBLIC.items() for header in headers}

# These stand outside: the public headers, system headers and their own folder are all they see.
OUTSIDE = ("cli", "python")
SHIPPED = ("include", "src", *OUTSIDE)
NAMED = (*SHIPPED, "tests", "bench", "fuzz")
# tests/ mirrors src/; these stand for no layer.
OTHER_TESTS = {"bench", "cli", "contract", "dashboard", "deploy", "doubles", "e2e", "frameworks", "golden", "python", "s3", "sim", "wordle"}

# Words that were given up for those of the field, and must not come back; ARCHITECTURE.md has the
# glossary. Words of an identifier count like words of a sentence: "road map" is RoadMap too.
RETIRED = {
    "board": "feed state, assignment",
    "conductor": "update coordinator",
    "corridor": "the name of the layer",
    "desk": "run writer",
    "hollow file": "zeroed file",
    "hollow files": "zeroed files",
    "journey": "replica updater",
    "kept changes": "change buffer",
    "kept moves": "move backlog",
    "layer twin": "layer reprocessor, scratch model",
    "leg": "step of a fetch plan",
    "legs": "steps of a fetch plan",
    "road": "merged delta",
    "roads": "merged deltas",
    "settle": "reconcile, conclude",
    "settled": "reconciled, concluded",
    "settles": "reconciles, concludes",
    "settling": "reconciling, concluding",
    "slip": "shard manifest",
    "slips": "shard manifests",
    "snapshot shelf": "snapshot folders",
    "strand": "segment",
    "strands": "segments",
    "take run": "begin an epoch",
    "travelled": "cumulative_delta_bytes",
    "unsettled": "needs reconcile",
    "upkeep": "maintenance",
    "whoever": "the process, thread or caller that is meant",
    "word room": "word buffers",
    "woven": "interleaved",
}
# Folders that src/ once had, as comments would name them.
ROOMS = re.compile(r"(?<![\w/])(?:decode|encode|seal)/(?!\w)")
SPOKEN = ("include", "src", "cli", "python", "doc", "examples", "dashboard/src", "tests", "bench", "fuzz",
          "deploy", "tools", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "README.md", "SECURITY.md")
# Recorded bytes, and this list of words itself.
UNSPOKEN = ("bench/data", "tests/golden", "fuzz/corpus", "tools/include_law.py")

HEADERS, SOURCES = {".hpp", ".h"}, {".cpp", ".cc", ".c"}
MAX_LINES = {"header": 130, "source": 400}
LARGEST_SHARE = 6  # no layer holds more than a sixth of src/
README_LINES = range(5, 16)
VAGUE = {"util", "utility", "utilitie", "helper", "common", "manager", "misc", "impl"}

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:(?P<open>[<"])(?P<path>[^>"]+)[>"]|(?P<computed>\w+))')


def files_under(top, folder):
    found = (top / folder).rglob("*")
    return sorted(p for p in found if p.is_file() and "__pycache__" not in p.parts)


def code_under(top, *folders):
    return [p for f in folders for p in files_under(top, f) if p.suffix in HEADERS | SOURCES]


def line_count(path):
    return len(path.read_text(encoding="utf-8").splitlines())


def includes(path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if match := INCLUDE.match(line):
            yield number, match["open"], match["path"]


def public_refusal(place, layer, target):
    """Why a public header may not be included there, or None."""
    header = target.removeprefix("wisp/").removesuffix(".hpp")
    if place in OUTSIDE or place == "tests":
        return None
    if header == "wisp":
        return "<wisp/wisp.hpp> is for those outside"
    if header not in LAYER_OF:
        return f"{target}: no layer has this public header; add it to PUBLIC"
    owner = LAYER_OF[header]
    if layer is not None and LAYERS.index(owner) > LAYERS.index(layer):
        return f"{target}: {layer} may not include what {owner} offers"
    return None


def refusal(place, layer, quote, target):
    """Why a file of `layer` in `place` may not include `target`, or None."""
    if target is None:
        return "an include must name its file"
    first, slash, _ = target.partition("/")
    if ".." in target.split("/"):
        return f"{target}: write the path from src/"
    if first == "wisp" and slash:
        return public_refusal(place, layer, target)
    if quote == "<":
        if slash and first in LAW:
            return f"<{target}>: layers are included with quotes"
        if place == "include" and slash and first != "sys":
            return f"<{target}>: a public header includes only wisp/... and system headers"
        return None
    if place == "include":
        return f'"{target}": a public header includes only wisp/... and system headers'
    if place in OUTSIDE:
        if slash and first != place:
            return f'"{target}": {place} sees only wisp/... and its own folder'
        return None
    if not slash or first not in LAW:
        return f'"{target}": write "layer/file.hpp" from src/, and other libraries as <...>'
    if first != layer and first not in LAW[layer]:
        return f'"{target}": {layer} may not include {first}'
    return None


def check_includes(top):
    for path in code_under(top, *SHIPPED):
        place, *inner = path.relative_to(top).parts
        layer = inner[0] if place == "src" and len(inner) > 1 else None
        if place == "src" and layer not in LAW:
            yield f"{path.relative_to(top)}: not in a layer"
            continue
        if place == "include":
            if path.stem == "wisp":
                continue
            layer = LAYER_OF.get(path.stem)
            if layer is None:
                yield f"{path.relative_to(top)}: no layer has this public header; add it to PUBLIC"
                continue
        for number, quote, target in includes(path):
            if reason := refusal(place, layer, quote, target):
                yield f"{path.relative_to(top)}:{number}: {reason}"


def check_folders(top):
    """No layer is most of the house, and each folder says what it is."""
    lines = defaultdict(int)
    folders = set()
    for path in code_under(top, "src"):
        lines[path.relative_to(top / "src").parts[0]] += line_count(path)
        folders.add(path.parent)
    limit = sum(lines.values()) // LARGEST_SHARE
    for layer, count in lines.items():
        if layer in LAW and count > limit:
            yield f"src/{layer}: {count} lines, more than a sixth of src/ ({limit}); split it"
    for folder in sorted(folders - {top / "src"}):
        short = folder.relative_to(top)
        readme = folder / "README.md"
        if folder.relative_to(top / "src").parts[0] not in LAW:
            continue
        if not readme.is_file():
            yield f"{short}: has no README.md that says what it is, what it may touch, where to start"
        elif line_count(readme) not in README_LINES:
            yield f"{short}/README.md: {line_count(readme)} lines; say it in 5 to 15"


def check_tests(top):
    for path in files_under(top, "tests"):
        folder, *rest = path.relative_to(top / "tests").parts
        if rest and folder not in LAW and folder not in OTHER_TESTS:
            yield f"{path.relative_to(top)}: tests stand in the folder of their layer"


def words_of(text):
    """The text with identifiers taken apart, in lower case."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_", " ", text)
    return re.sub(r"\s+", " ", apart).lower()


def check_words(top):
    if not RETIRED:
        return
    retired = re.compile(r"\b(" + "|".join(map(re.escape, RETIRED)) + r")\b")
    for place in SPOKEN:
        found = [top / place] if (top / place).is_file() else files_under(top, place)
        for path in found:
            short = path.relative_to(top)
            if str(short).startswith(UNSPOKEN):
                continue
            if match := retired.search(words_of(str(short.with_suffix("")))):
                yield f"{short}: '{match[1]}' is retired: {RETIRED[match[1]]}"
            try:
                lines = path.read_text(encoding="utf-8").splitlines()
            except UnicodeDecodeError:
                continue  # a picture
            for number, line in enumerate(lines, 1):
                if match := retired.search(words_of(line)):
                    yield f"{short}:{number}: '{match[1]}' is retired: {RETIRED[match[1]]}"
                if match := ROOMS.search(line):
                    yield f"{short}:{number}: there is no folder '{match[0]}'"


def check_names(top):
    """One stem names one header and one source, side by side or with the header public."""
    stems = defaultdict(list)
    for path in code_under(top, "include", "src", "cli", "python"):
        stems[path.stem].append(path.relative_to(top))
    for stem, paths in stems.items():
        headers = [p for p in paths if p.suffix in HEADERS]
        sources = [p for p in paths if p.suffix in SOURCES]
        paired = not (headers and sources) or headers[0].parts[0] == "include" \
            or headers[0].parent == sources[0].parent
        if len(headers) > 1 or len(sources) > 1 or not paired:
            yield f"{stem}: the name is taken twice: {', '.join(map(str, paths))}"
    for folder in NAMED:
        for path in files_under(top, folder):
            short = path.relative_to(top)
            for part in (*short.parts[:-1], path.stem):
                words = re.split(r"[^a-z]+", part.lower())
                if vague := [word for word in words if word.rstrip("s") in VAGUE]:
                    yield f"{short}: '{vague[0]}' says nothing; name what is inside"


def check_lengths(top):
    modules = [p for p in files_under(top, "python") if p.suffix == ".py"]
    for path in code_under(top, *SHIPPED) + modules:
        limit = MAX_LINES["header" if path.suffix in HEADERS else "source"]
        if line_count(path) > limit:
            yield f"{path.relative_to(top)}: {line_count(path)} lines, the limit is {limit}"


def check(top):
    return [*check_includes(top), *check_names(top), *check_lengths(top), *check_folders(top),
            *check_tests(top), *check_words(top)]


def self_test():
    assert set(PUBLIC) <= set(LAYERS) and set(NARROW) <= set(LAYERS)
    assert all(seen <= set(LAYERS[:LAYERS.index(layer)]) for layer, seen in LAW.items())
    assert words_of("RoadMap take_road_map ARoad") == "road map take road map a road"
    lawful = {
        "include/wisp/publisher.hpp": "#include <wisp/result.hpp>\n#include <sys/types.h>\n",
        "include/wisp/wisp.hpp": '#include "wisp/publisher.hpp"\n',
        "src/publish/publisher.cpp": '#include "delta/seal.hpp"\n#include "wisp/publisher.hpp"\n',
        "src/kernel/diff.hpp": '#include "base/bytes.hpp"\n#include <hwy/highway.h>\n',
        "src/kernel/diff.cpp": '#include "kernel/diff.hpp"\n#include <wisp/result.hpp>\n',
        "src/codec/decode.cpp": '#include "checkpoint/blocks.hpp"\n',
        "cli/main.cpp": '#include "commands.hpp"\n#include <wisp/wisp.hpp>\n#include <CLI/CLI.hpp>\n',
        "tests/diff_test.cpp": '#include "kernel/diff.hpp"\n',
    }
    for layer in LAYERS:  # as many lines in each, so that none is a sixth
        lawful[f"src/{layer}/README.md"] = "what it is\n" * 5
        lawful[f"src/{layer}/{layer}_lines.cpp"] = "\n" * 300
    unlawful = {
        "src/base/a.cpp": ('#include "kernel/diff.hpp"\n', "base may not include kernel"),
        "src/follow/b.cpp": ('  #  include "publish/x.hpp"\n', "follow may not include publish"),
        "src/store/c.cpp": ('#include "delta/x.hpp"\n', "store may not include delta"),
        "src/engine/d.cpp": ('#include "log/x.hpp"\n', "engine may not include log"),
        "src/log/k.cpp": ('#include "delta/x.hpp"\n', "log may not include delta"),
        "src/delta/e.cpp": ("#include <kernel/diff.hpp>\n", "with quotes"),
        "src/kernel/f.cpp": ('#include "diff.hpp"\n', 'write "layer/file.hpp"'),
        "src/kernel/g.cpp": ('#include "../delta/x.hpp"\n', "from src/"),
        "src/kernel/h.cpp": ("#include SOME_MACRO\n", "must name its file"),
        "src/attic/i.cpp": ("", "not in a layer"),
        "src/j.cpp": ("", "not in a layer"),
        "cli/k.cpp": ('#include "kernel/diff.hpp"\n', "cli sees only"),
        "include/wisp/store.hpp": ("#include <fmt/core.h>\n", "a public header includes only"),
        "include/wisp/run.hpp": ('#include "base/bytes.hpp"\n', "a public header includes only"),
        "include/wisp/delta.hpp": ('#include "wisp/run.hpp"\n', "delta may not include what log"),
        "include/wisp/news.hpp": ("", "add it to PUBLIC"),
        "src/log/l.cpp": ('#include "wisp/replica.hpp"\n', "log may not include what follow"),
        "src/log/m.cpp": ("#include <wisp/wisp.hpp>\n", "is for those outside"),
        "src/codec/diff.hpp": ("", "taken twice"),
        "src/base/string_utils.hpp": ("", "says nothing"),
        "tests/base/common_n.cpp": ("", "says nothing"),
        "tests/attic/n.cpp": ("", "in the folder of their layer"),
        "src/base/o.hpp": ("\n" * 131, "the limit is 130"),
        "src/base/p.cpp": ("\n" * 401, "the limit is 400"),
        "python/wisp/q.py": ("\n" * 401, "the limit is 400"),
        "python/native/diff.cpp": ("", "taken twice"),
        "src/store/s3/q.cpp": ("", "has no README.md"),
        "src/store/README.md": ("a store\n" * 16, "say it in 5 to 15"),
        "src/base/r.cpp": ("// a Corridor\n", "is retired"),
        "cli/the_corridor.cpp": ("", "is retired"),
        "README.md": ("corridor_of()\n", "is retired"),
        "tests/base/s_test.cpp": ("TEST(A, JourneyEnds)\n", "is retired"),
        "src/codec/t.cpp": ("// as encode/ does\n", "there is no folder"),
    }
    heavy = {f"src/base/heavy_{i}.cpp": "\n" * 300 for i in range(3)}

    def judge(tree):
        with tempfile.TemporaryDirectory() as name:
            for path, text in tree.items():
                file = Path(name, path)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
            return check(Path(name))

    assert judge(lawful) == [], judge(lawful)
    assert ["more than a sixth" in error for error in judge(lawful | heavy)] == [True]
    for path, (text, reason) in unlawful.items():
        errors = judge(lawful | {path: text})
        assert len(errors) == 1 and reason in errors[0], f"{path}: wanted '{reason}', got {errors}"


def main():
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        return 0
    if sys.argv[1:]:
        sys.exit(__doc__)
    errors = check(Path(__file__).resolve().parent.parent)
    for error in errors:
        print(error, file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
