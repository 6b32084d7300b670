"""doc/protocol.md names a test, or a reason, for every row of the failure catalogue; the tests exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOT_TESTED = {30, 61}  # the row itself says why


def catalogue():
    text = (ROOT / "doc/protocol.md").read_text()
    section = text[text.index("## 13. ") : text.index("## 14. ")]
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0].isdigit():
            yield int(cells[0]), cells[2], cells[3]


ROWS = list(catalogue())


def exists(reference):
    file, _, test = reference.partition("::")
    path = ROOT / ("" if file.startswith("fuzz/") else "tests") / file
    if not path.is_file():
        return False
    if not test:
        return True
    if file.endswith(".py"):
        return re.search(rf"^def {test}\b", path.read_text(), re.M) is not None
    suite, _, name = test.partition(".")
    return re.search(rf"^TEST\w*\({suite},\s*{name}\)", path.read_text(), re.M) is not None


def test_every_row_is_there_once_and_in_order():
    assert [number for number, _, _ in ROWS] == list(range(1, 66))


def test_every_row_has_a_test_or_a_reason():
    assert {number for number, _, tests in ROWS if not tests} == NOT_TESTED
    assert all(answer for _, answer, _ in ROWS)


@pytest.mark.parametrize("number, answer, tests", ROWS, ids=lambda value: str(value)[:3])
def test_every_test_a_row_names_exists(number, answer, tests):
    missing = [name for name in re.findall(r"`([^`]+)`", tests) if not exists(name)]
    assert missing == [], f"row {number}"
