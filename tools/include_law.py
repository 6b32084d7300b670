#!/usr/bin/env python3
"""The include law: which room of src/ may include which, and how files are named and sized.

usage: tools/include_law.py [--self-test]
"""
import re
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

# Room -> the other rooms it may include. Every room also sees itself and the public <wisp/...>.
LAW = {
    # The walls: what both halves are built on.
    "base": set(),
    "kernel": {"base"},
    "codec": {"base", "kernel"},
    "format": {"base"},
    "web": {"base"},
    "store": {"base", "format", "web"},
    # Going out.
    "detect": {"base", "kernel", "format"},
    "encode": {"base", "kernel", "codec"},
    "seal": {"base", "format", "codec"},
    "publish": {"base", "store", "format"},
    # Coming in.
    "fetch": {"base", "store", "format"},
    "verify": {"base", "format", "codec"},
    "decode": {"base", "kernel", "codec", "verify"},
    "apply": {"base", "kernel", "format"},
}
GOING_OUT = {"detect", "encode", "seal", "publish"}
COMING_IN = {"fetch", "verify", "decode", "apply"}
# Beside them: servers of engines, told what to serve.
LAW["engine"] = {"base", "web"}
# The corridor joins the rooms: it sees every one of them, and none of them sees it.
LAW["corridor"] = set(LAW)

# These stand outside: the public headers, system headers and their own folder are all they see.
OUTSIDE = ("cli", "python")
SHIPPED = ("include", "src", *OUTSIDE)
NAMED = (*SHIPPED, "tests", "bench", "fuzz")

HEADERS, SOURCES = {".hpp", ".h"}, {".cpp", ".cc", ".c"}
MAX_LINES = {"header": 130, "source": 400}
VAGUE = {"util", "utility", "utilitie", "helper", "common", "manager", "misc", "impl"}

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:(?P<open>[<"])(?P<path>[^>"]+)[>"]|(?P<computed>\w+))')


def files_under(top, folder):
    found = (top / folder).rglob("*")
    return sorted(p for p in found if p.is_file() and "__pycache__" not in p.parts)


def code_under(top, *folders):
    return [p for f in folders for p in files_under(top, f) if p.suffix in HEADERS | SOURCES]


def includes(path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if match := INCLUDE.match(line):
            yield number, match["open"], match["path"]


def refusal(place, room, quote, target):
    """Why a file of `room` in `place` may not include `target`, or None."""
    if target is None:
        return "an include must name its file"
    first, slash, _ = target.partition("/")
    if ".." in target.split("/"):
        return f"{target}: write the path from src/"
    if first == "wisp" and slash:
        return None
    if quote == "<":
        if slash and first in LAW:
            return f"<{target}>: rooms are included with quotes"
        if place == "include" and slash and first != "sys":
            return f"<{target}>: a public header includes only <wisp/...> and system headers"
        return None
    if place == "include":
        return f'"{target}": a public header includes only <wisp/...> and system headers'
    if place in OUTSIDE:
        if slash and first != place:
            return f'"{target}": {place} sees only <wisp/...> and its own folder'
        return None
    if not slash or first not in LAW:
        return f'"{target}": write "room/file.hpp" from src/, and other libraries as <...>'
    if first != room and first not in LAW[room]:
        return f'"{target}": {room} may not include {first}'
    return None


def check_includes(top):
    for path in code_under(top, *SHIPPED):
        place, *inner = path.relative_to(top).parts
        room = inner[0] if len(inner) > 1 else None
        if place == "src" and room not in LAW:
            yield f"{path.relative_to(top)}: not in a room of the include law"
            continue
        for number, quote, target in includes(path):
            if reason := refusal(place, room, quote, target):
                yield f"{path.relative_to(top)}:{number}: {reason}"


def check_names(top):
    """One stem names one header and one source, side by side or with the header public."""
    stems = defaultdict(list)
    for path in code_under(top, "include", "src", "cli"):
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
    for path in code_under(top, *SHIPPED):
        limit = MAX_LINES["header" if path.suffix in HEADERS else "source"]
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > limit:
            yield f"{path.relative_to(top)}: {lines} lines, the limit is {limit}"


def check(top):
    return [*check_includes(top), *check_names(top), *check_lengths(top)]


def self_test():
    assert not any(LAW[room] & COMING_IN for room in GOING_OUT), "going out sees coming in"
    assert not any(LAW[room] & GOING_OUT for room in COMING_IN), "coming in sees going out"
    lawful = {
        "include/wisp/publisher.hpp": "#include <wisp/error.hpp>\n#include <sys/types.h>\n",
        "src/corridor/publisher.cpp": '#include "seal/seal.hpp"\n#include "apply/patch.hpp"\n',
        "src/kernel/diff.hpp": '#include "base/bytes.hpp"\n#include <hwy/highway.h>\n',
        "src/kernel/diff.cpp": '#include "kernel/diff.hpp"\n#include <wisp/error.hpp>\n',
        "src/decode/decode.cpp": '#include "verify/verified_object.hpp"\n',
        "cli/main.cpp": '#include "commands.hpp"\n#include <wisp/wisp.hpp>\n#include <CLI/CLI.hpp>\n',
        "tests/diff_test.cpp": '#include "kernel/diff.hpp"\n',
    }
    unlawful = {
        "src/base/a.cpp": ('#include "kernel/diff.hpp"\n', "base may not include kernel"),
        "src/seal/b.cpp": ('  #  include "verify/x.hpp"\n', "seal may not include verify"),
        "src/fetch/c.cpp": ('#include "publish/x.hpp"\n', "fetch may not include publish"),
        "src/apply/d.cpp": ('#include "corridor/x.hpp"\n', "apply may not include corridor"),
        "src/apply/e.cpp": ("#include <kernel/diff.hpp>\n", "with quotes"),
        "src/kernel/f.cpp": ('#include "diff.hpp"\n', 'write "room/file.hpp"'),
        "src/kernel/g.cpp": ('#include "../seal/x.hpp"\n', "from src/"),
        "src/kernel/h.cpp": ("#include SOME_MACRO\n", "must name its file"),
        "src/attic/i.cpp": ("", "not in a room"),
        "src/j.cpp": ("", "not in a room"),
        "cli/k.cpp": ('#include "kernel/diff.hpp"\n', "cli sees only"),
        "include/wisp/l.hpp": ("#include <fmt/core.h>\n", "a public header includes only"),
        "include/wisp/m.hpp": ('#include "base/bytes.hpp"\n', "a public header includes only"),
        "src/codec/diff.hpp": ("", "taken twice"),
        "src/base/string_utils.hpp": ("", "says nothing"),
        "tests/common/n.cpp": ("", "says nothing"),
        "src/base/o.hpp": ("\n" * 131, "the limit is 130"),
        "src/base/p.cpp": ("\n" * 401, "the limit is 400"),
    }

    def judge(tree):
        with tempfile.TemporaryDirectory() as name:
            for path, text in tree.items():
                file = Path(name, path)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
            return check(Path(name))

    assert judge(lawful) == [], judge(lawful)
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
