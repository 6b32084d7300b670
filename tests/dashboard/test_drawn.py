"""What the pictures of the page say, read off them: over data that never change, so that every place is known."""

import re

import numpy as np

import frozen_run
from test_pictures import shown

TEXTS = """() => [...document.querySelectorAll('.chart')].map(
    (chart) => [...chart.querySelectorAll('text')].map((text) => text.textContent))"""
# Where the marks of one colour stand, in pixels of their picture.
PLACES = """([number, colour]) => [...document.querySelectorAll('.chart')[number].querySelectorAll(`[fill="${colour}"]`)]
    .map((mark) => mark.transform.baseVal)
    .filter((moves) => moves.numberOfItems === 1)
    .map((moves) => moves.getItem(0).matrix.e)"""


def drawn(browser, look, ask):
    context, page = shown(browser, "run", look)
    try:
        return ask(page)
    finally:
        context.close()


def test_every_axis_has_a_title(browser):
    charts = drawn(browser, "light-1440", lambda page: page.evaluate(TEXTS))
    titles = [{text.strip("↑→ ") for text in texts} for texts in charts]
    wanted = [{"step", "bytes of a commit (log)"}, {"step", "since the step before (log)"}, {"step", "share changed"},
              {"time (UTC)", "steps behind"}, {"time (UTC)", "pause (log)"}]
    assert [some <= found for some, found in zip(wanted, titles, strict=True)] == [True] * 5, titles


def test_steps_stand_where_their_numbers_are(browser):
    """The frozen run jumps by eleven steps; one that counted commits would place them side by side."""
    places = sorted(drawn(browser, "light-1440", lambda page: page.evaluate(PLACES, [0, "var(--delta)"])))
    steps = sorted(commit["step"] for commit in frozen_run.COMMITS if commit["delta_bytes"])
    assert len(places) == len(steps)
    assert max(np.diff(steps)) >= 11 > 2 * np.median(np.diff(steps))
    slope, offset = np.polyfit(steps, places, 1)
    assert slope > 0 and np.abs(np.polyval([slope, offset], steps) - places).max() < 0.5


def test_the_heat_map_says_its_range_and_its_scale_starts_there(browser):
    told, charts = drawn(browser, "light-1440", lambda page: (
        page.locator("[data-figure='heat-range']").inner_text(), page.evaluate(TEXTS)))
    layers = frozen_run.layers()
    shares = {(layers["layers"][layer]["name"], step["step"]): changed / layers["layers"][layer]["elements"]
              for step in layers["steps"] for layer, changed, _ in step["cells"]}
    least, most = min(shares, key=shares.get), max(shares, key=shares.get)
    found = re.fullmatch(r"From ([\d.]+) % \((.+), step (\d+)\) to ([\d.]+) % \((.+), step (\d+)\); the colours span .*", told)
    assert found, told
    assert (found[2], int(found[3])) == least and (found[5], int(found[6])) == most
    assert abs(float(found[1]) - 100 * shares[least]) < 0.001 and abs(float(found[4]) - 100 * shares[most]) < 0.001
    ticks = [float(text[:-2]) for text in charts[2] if re.fullmatch(r"[\d.]+ %", text)]
    assert len(ticks) >= 3 and 100 * shares[least] <= ticks[0] and ticks[-1] <= 100 * shares[most]


def test_on_a_phone_each_replica_shows_step_lag_and_last_heard(browser):
    rows = drawn(browser, "light-390", lambda page: page.evaluate("""() =>
        [...document.querySelectorAll('tr[data-replica]')].map((row) => [row.dataset.replica,
          Object.fromEntries([...row.querySelectorAll('td')].map((cell) => {
            const box = cell.getBoundingClientRect();
            return [cell.dataset.label, [cell.innerText, box.width > 0 && box.height > 0 && box.left >= 0 && box.right <= 390]];
          }))])"""))
    assert [name for name, _ in rows] == [replica["id"] for replica in frozen_run.REPLICAS]
    for (_, cells), replica in zip(rows, frozen_run.REPLICAS, strict=True):
        assert all(seen for _, seen in cells.values()), cells
        assert cells["step"][0] == str(replica["step"]) and cells["steps behind"][0] == str(replica["lag_steps"])
        assert cells["last heard"][0].endswith(" ago") and set(cells) >= {"health", "last pause"}
