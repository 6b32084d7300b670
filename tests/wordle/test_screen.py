"""What the demo shows, on a terminal and elsewhere."""

from __future__ import annotations

import screen


def test_a_drawing_replaces_the_one_before(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    shown = screen.Screen()
    shown.live = True
    shown.draw(["one", "x" * 50], "brief")
    first = capsys.readouterr().out
    assert first == "one\n" + "x" * 19 + "\n"  # a line that wraps would be two
    shown.draw(["two"], "brief")
    assert capsys.readouterr().out == "\033[2A\033[Jtwo\n"
    shown.news("told")
    assert capsys.readouterr().out == "\033[1A\033[Jtold\n"
    shown.news("more")
    assert capsys.readouterr().out == "more\n"


def test_elsewhere_it_is_brief_and_seldom(capsys):
    shown = screen.Screen(every=1000)
    assert not shown.live
    for number in range(3):
        shown.draw(["a", "b"], f"brief {number}")
    assert capsys.readouterr().out == "brief 0\n"


def test_a_curve_rises_where_the_values_do():
    assert screen.curve([0, 1, 2, 3, 4, 5, 6, 7]) == screen.BARS
    assert screen.curve(list(range(1000)), 8) == screen.BARS
    assert screen.curve([5, 5, 5]) == screen.BARS[0] * 3
    assert screen.curve([]) == ""


def test_sizes_and_spans():
    assert [screen.size(n) for n in (0, 999, 42_400, 4_308_672, 3.89e9)] == [
        "0 B",
        "999 B",
        "42.4 kB",
        "4.31 MB",
        "3.89 GB",
    ]
    assert screen.span(0.0005) == "0.5 ms" and screen.span(61) == "61.0 s"
