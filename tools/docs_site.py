#!/usr/bin/env python3
"""The documents as mkdocs reads them: copied with all they link to, an API reference beside them, links checked.

usage: tools/docs_site.py FOLDER     fills FOLDER with pages/ and mkdocs.yml; exit 1 and a list when a link leads nowhere
       tools/docs_site.py --check    checks the links only

Documents are written to be read in the tree, so pages/ is laid out as the tree is. What mkdocs cannot link to, folders,
becomes a page: their README, or a list of what is in them. The reference is made from the comments of the public
headers and the docstrings of the package, without importing it.
"""

import ast
import os
import pathlib
import re
import shutil
import subprocess
import sys

TREE = pathlib.Path(__file__).resolve().parents[1]
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
FENCE = re.compile(r"^(```|~~~).*?^\1\s*$", re.M | re.S)
LEFT_OUT = (".github/", "fuzz/", "examples/hub/environment-space/", "examples/hub/vllm-space/")

# The order of reading, as doc/README.md has it.
NAVIGATION = [
    ("Start", ["README.md", "doc/install.md", "doc/demo.md", "doc/guarantees.md"]),
    ("Use", ["doc/cli.md", "doc/python.md", "doc/engines.md", "doc/engines-driving.md", "doc/engines-trl.md", "doc/frameworks.md",
             "doc/hub.md", "doc/trl.md", "doc/dashboard.md", "doc/benchmarks.md"]),
    ("Operate", ["doc/operations.md", "doc/metrics.md", "doc/trust.md", "deploy/README.md", "SECURITY.md"]),
    ("Reference", ["api/python.md", "api/cpp.md", "doc/format.md", "doc/protocol.md"]),
    ("Change it", ["ARCHITECTURE.md", "CONTRIBUTING.md", "doc/decisions/README.md", "CHANGELOG.md", "doc/README.md"]),
]


def documents():
    """Every document of the tree, also one that is not committed yet."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.md"], cwd=TREE, check=True,
                            capture_output=True, text=True).stdout.split()
    return [name for name in sorted(listed) if not name.startswith(LEFT_OUT)]


def anchors_of(text):
    """What links may end in: headings as GitHub names them, and <a id=…>."""
    found = set(re.findall(r'<a id="([^"]+)"', text))
    for heading in re.findall(r"^#+\s+(.*?)\s*$", FENCE.sub("", text), re.M):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
        found.add(re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-"))
    return found


def links_of(name, text):
    """Links to other places of the tree: as written, the file or folder, the anchor."""
    for found in LINK.finditer(FENCE.sub(lambda fence: " " * len(fence[0]), text)):
        target = found[2]
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        yield target, os.path.normpath(os.path.join(os.path.dirname(name), path)) if path else name, anchor


def broken_links():
    """What leads nowhere: "document: link"."""
    wrong = []
    texts = {name: (TREE / name).read_text() for name in documents()}
    for name, text in texts.items():
        for target, path, anchor in links_of(name, text):
            if path.startswith("..") or not (TREE / path).exists():
                wrong.append(f"{name}: {target}")
            elif anchor and path in texts and anchor not in anchors_of(texts[path]):
                wrong.append(f"{name}: {target} (no such heading)")
    listed = {page for _, pages in NAVIGATION for page in pages}
    unread = [name for name in texts if name.startswith("doc/") and name.count("/") == 1 and name not in listed]
    return wrong + [f"{name}: not in the navigation of tools/docs_site.py" for name in unread]


def header_page():
    """The public headers: what each is, and its declarations with their contracts."""
    page = ["# C++ API", "", "The public headers, in the order of `ARCHITECTURE.md`: begin with `publisher.hpp` and",
            "`follower.hpp`. Everything is in the namespace `wisp`; failures are `Result<T>`.", ""]
    for path in sorted((TREE / "include/wisp").glob("*.hpp")):
        comment, code, began = [], [], False
        for line in path.read_text().splitlines():
            if not began and line.startswith("//"):
                comment.append(line.removeprefix("//").removeprefix(" "))
            elif line.startswith(("#pragma once", "#include")) or (not began and not line.strip()):
                began = began or line.startswith("#pragma once")
            else:
                began = True
                code.append(line)
        page += [f"## {path.name}", "", *comment, "", "```cpp", "\n".join(code).strip(), "```", ""]
    return "\n".join(page)


def signature_of(node):
    """A function's or a class's first line, as it would be called."""
    if isinstance(node, ast.ClassDef):
        init = next((n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)
        arguments = ast.unparse(init.args).removeprefix("self, ").removeprefix("self") if init else ""
        return wrapped(f"class {node.name}", arguments, "")
    returned = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return wrapped(f"def {node.name}", ast.unparse(node.args), returned)


def wrapped(name, arguments, returned):
    """On one line if it fits, else an argument per line."""
    if len(name) + len(arguments) + len(returned) < 88:
        return f"{name}({arguments}){returned}"
    # A comma inside brackets parts no arguments.
    parts = re.findall(r"(?:[^,\[({]|\[(?:[^\[\]]|\[[^\]]*\])*\]|\([^)]*\)|\{[^}]*\})+", arguments)
    return f"{name}(\n" + "".join(f"    {part.strip()},\n" for part in parts) + f"){returned}"


def described(node, level):
    """A definition with its docstring, and those of its public members."""
    lines = [f"{'#' * level} {node.name}", "", "```python", signature_of(node), "```", ""]
    lines += [ast.get_docstring(node) or "", ""]
    for member in node.body if isinstance(node, ast.ClassDef) else ():
        if isinstance(member, ast.FunctionDef) and not member.name.startswith("_"):
            lines += described(member, level + 1)
    return lines


def python_page():
    """What each module of the package offers, by its __all__."""
    page = ["# Python API", "", "`import wisp` has the names of the first modules; the others are imported by name.", ""]
    top = ast.parse((TREE / "python/wisp/__init__.py").read_text())
    first = {n.module for n in ast.walk(top) if isinstance(n, ast.ImportFrom) and n.level == 1}
    package = TREE / "python/wisp"
    ranked = sorted(package.rglob("*.py"),
                    key=lambda path: (".".join(path.relative_to(package).with_suffix("").parts) not in first, path))
    for path in ranked:
        module = ast.parse(path.read_text())
        named = next((n.value for n in module.body if isinstance(n, ast.Assign)
                      and getattr(n.targets[0], "id", "") == "__all__"), None)
        offered = set(ast.literal_eval(named)) if named is not None else set()
        found = [n for n in module.body if isinstance(n, (ast.ClassDef, ast.FunctionDef)) and n.name in offered]
        if not found or path.name.startswith("_"):
            continue
        dotted = ".".join(path.relative_to(TREE / "python").with_suffix("").parts)
        page += [f"## {dotted}", "", ast.get_docstring(module) or "", ""]
        for node in found:
            page += described(node, 3)
    return "\n".join(page)


def folder_page(folder):
    """A list of what is in a folder, for links that lead to it."""
    files = sorted(p for p in folder.iterdir() if p.is_file())
    return f"# {folder.relative_to(TREE)}\n\n" + "".join(f"- [{p.name}]({p.name})\n" for p in files)


def write_pages(pages):
    """Documents, what they link to, folders as pages."""
    waiting, done = list(documents()), set()
    while waiting:
        name = waiting.pop()
        if name in done:
            continue
        done.add(name)
        source, place = TREE / name, pages / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            place = place / "README.md"
            place.parent.mkdir(parents=True, exist_ok=True)
            if not (source / "README.md").exists():
                place.write_text(folder_page(source))
                waiting += [str(p.relative_to(TREE)) for p in source.iterdir() if p.is_file()]
            continue
        if not name.endswith(".md"):
            shutil.copyfile(source, place)
            continue
        text = source.read_text()
        for target, path, anchor in links_of(name, text):
            waiting.append(path)
            if (TREE / path).is_dir():
                page = target.split("#")[0].rstrip("/") + "/README.md" + (f"#{anchor}" if anchor else "")
                text = text.replace(f"]({target})", f"]({page})")
        # A fence that says more than its language is none to mkdocs.
        place.write_text(re.sub(r"^```(\w+) [^\n]*$", r"```\1", text, flags=re.M))


def configuration():
    """mkdocs.yml."""
    lines = ["site_name: wisp", "site_description: weights in sparse patches", "docs_dir: pages", "site_dir: site",
             "use_directory_urls: false", "strict: true", "theme:", "  name: material", "  font: false",
             "  features: [navigation.tabs, navigation.sections, navigation.footer, toc.follow, search.highlight,"
             " content.code.copy]", "  palette:",
             "    - {media: '(prefers-color-scheme: light)', scheme: default, toggle: {icon: material/weather-night, name: dark}}",
             "    - {media: '(prefers-color-scheme: dark)', scheme: slate, toggle: {icon: material/weather-sunny, name: light}}",
             "markdown_extensions:", "  - tables", "  - attr_list", "  - pymdownx.highlight", "  - pymdownx.superfences",
             "  - toc: {permalink: true, slugify: !!python/object/apply:pymdownx.slugs.slugify {kwds: {case: lower}}}",
             "plugins: [search]", "validation: {links: {anchors: warn, unrecognized_links: warn}, omitted_files: info}",
             "nav:"]
    for title, pages in NAVIGATION:
        lines.append(f"  - {title}:")
        lines += [f"      - {page}" for page in pages]
    return "\n".join(lines) + "\n"


def main():
    wrong = broken_links()
    if wrong:
        print("links that lead nowhere:", *wrong, sep="\n  ", file=sys.stderr)
        return 1
    if sys.argv[1:] == ["--check"]:
        return 0
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    place = pathlib.Path(sys.argv[1])
    shutil.rmtree(place / "pages", ignore_errors=True)
    write_pages(place / "pages")
    (place / "pages/api").mkdir()
    (place / "pages/api/cpp.md").write_text(header_page())
    (place / "pages/api/python.md").write_text(python_page())
    (place / "mkdocs.yml").write_text(configuration())
    return 0


if __name__ == "__main__":
    sys.exit(main())
