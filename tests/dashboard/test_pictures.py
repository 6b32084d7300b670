"""Every view in light, dark and on a phone, over data that never change, against pictures that people looked at.

A picture is cut into cells of 24 pixels, and their mean colours are compared: another font or a moved pixel passes; a
chart without its data, a colour that is another, a section that is gone or out of place does not. Sections are compared one
by one, so that a line more in one of them does not shift all others. Texts are not read here: test_page does.

Pictures lie in pictures/, half as large as they were. WISP_NEW_PICTURES=1 takes them again; look at them before they are
committed.
"""

import base64
import json
import os
import pathlib

import numpy as np
import pytest

import frozen_run

PICTURES = pathlib.Path(__file__).parent / "pictures"
PAGE = pathlib.Path(__file__).resolve().parents[2] / "dashboard/dist/index.html"
HOME = "http://wisp.test/"
LOOKS = {
    "light-1440": {"viewport": {"width": 1440, "height": 900}, "color_scheme": "light"},
    "light-1024": {"viewport": {"width": 1024, "height": 800}, "color_scheme": "light"},
    "dark-1440": {"viewport": {"width": 1440, "height": 900}, "color_scheme": "dark"},
    "light-390": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light", "has_touch": True},
    "dark-390": {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark", "has_touch": True},
}
VIEWS = {"run": "#/", "time": "#/", "step": "#/run/0/step/60", "how": "#/how", "runs": "#/", "trouble": "#/"}
READY = {"run": "#chain-title", "time": "#chain-title", "step": "#tensors-title", "how": "#pauses-title",
         "runs": "#runs-title", "trouble": ".trouble"}
CELL = 24
# Of 255. Anti-aliasing and other fonts move a cell by about 10; a chart that is empty moves dozens by 40 and more.
TOLERATED_MEAN = 6.0
TOLERATED_CELLS = 0.04  # of a section may differ by more than
TOLERATED_CELL = 48.0
TOLERATED_HEIGHT = 0.12
TROUBLE = {"error": "unavailable", "message": "s3://weights does not answer: connection refused; is it running?",
           "since_ms": frozen_run.NOW - 130_000, "read_ms": frozen_run.NOW - 131_000}

# Scales pictures and takes their cells' colours: the browser can, and nothing has to be installed for it.
SHRINK = """async ([data, share]) => {
  const bitmap = await createImageBitmap(await (await fetch(data)).blob());
  const canvas = new OffscreenCanvas(Math.max(1, Math.round(bitmap.width * share)),
                                     Math.max(1, Math.round(bitmap.height * share)));
  const context = canvas.getContext("2d");
  context.imageSmoothingQuality = "high";
  context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  const blob = await canvas.convertToBlob({ type: "image/webp", quality: 0.6 });
  const bytes = new Uint8Array(await blob.arrayBuffer());
  return btoa(Array.from(bytes, (b) => String.fromCharCode(b)).join(""));
}"""
CELLS = """async ([data, cell, scale, boxes]) => {
  const bitmap = await createImageBitmap(await (await fetch(data)).blob());
  const canvas = new OffscreenCanvas(Math.round(bitmap.width * scale), Math.round(bitmap.height * scale));
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return boxes.map(([, left, top, width, height]) => {
    const { data: pixels } = context.getImageData(left, top, width, height);
    const [across, down] = [Math.ceil(width / cell), Math.ceil(height / cell)];
    const sums = new Float64Array(across * down * 4);
    for (let y = 0; y < height; y += 1) {
      for (let x = 0; x < width; x += 1) {
        const at = 4 * (Math.floor(y / cell) * across + Math.floor(x / cell));
        const from = 4 * (y * width + x);
        for (let i = 0; i < 3; i += 1) sums[at + i] += pixels[from + i];
        sums[at + 3] += 1;
      }
    }
    return [across, down, Array.from(sums)];
  });
}"""
# A chart is in the page some frames before its picture is: it is measured first. Then nothing moves any more.
DRAWN = """() => [...document.querySelectorAll('.chart')].every((chart) => chart.querySelector('svg'))"""
STILL = """async () => {
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const places = () => JSON.stringify([...document.querySelectorAll('body *')].map((e) => {
    const box = e.getBoundingClientRect();
    return [box.left, box.top, box.width, box.height];
  }));
  for (let before = '', same = 0; same < 2;) {
    await frame();
    const now = places();
    same = now === before ? same + 1 : 0;
    before = now;
  }
}"""
# Of each picture: what reaches out of its section, and which labels lie on each other.
LABELS = """() => {
  const found = [];
  for (const svg of document.querySelectorAll('.chart svg')) {
    const home = svg.closest('section').getBoundingClientRect();
    const texts = [...svg.querySelectorAll('text')].filter((t) => t.textContent.trim() && t.getBoundingClientRect().width > 0);
    const boxes = texts.map((t) => [t.textContent, t.getBoundingClientRect()]);
    for (const [text, box] of boxes) {
      if (box.left < home.left - 0.5 || box.right > home.right + 0.5) found.push(`cut: ${text}`);
    }
    for (let i = 0; i < boxes.length; i += 1) {
      for (let j = i + 1; j < boxes.length; j += 1) {
        const [a, b] = [boxes[i][1], boxes[j][1]];
        const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (wide > 1 && high > 3) found.push(`${boxes[i][0]} lies on ${boxes[j][0]}`);
      }
    }
  }
  for (const cell of document.querySelectorAll('.tile dd, .tile dt, .verdict p, h2, .legend li')) {
    if (cell.scrollWidth > cell.clientWidth + 1 && getComputedStyle(cell).overflow !== 'visible') found.push(`cut: ${cell.textContent}`);
  }
  return found;
}"""


def data_url(picture, kind):
    return f"data:image/{kind};base64,{base64.b64encode(picture).decode()}"


@pytest.fixture(scope="session")
def tools(browser):
    """A page that works on pictures."""
    page = browser.new_context().new_page()
    yield page
    page.close()


def shown(browser, view, look):
    """The page over frozen answers and a frozen clock, drawn."""
    context = browser.new_context(**LOOKS[look], reduced_motion="reduce", timezone_id="UTC", locale="en-US")
    page = context.new_page()
    page.set_default_timeout(300_000)
    page.clock.set_fixed_time(frozen_run.NOW / 1000)

    def fulfil(route):
        path = route.request.url.removeprefix(HOME.rstrip("/"))
        if path in ("/", ""):
            route.fulfill(body=PAGE.read_text(), content_type="text/html; charset=utf-8")
            return
        status, body = frozen_run.answer(path, view == "runs", TROUBLE if view == "trouble" else None)
        route.fulfill(status=status, body=body, content_type="application/json")

    page.route("**/*", fulfil)
    page.goto(HOME + VIEWS[view])
    page.wait_for_selector(READY[view])
    if view in ("run", "time", "trouble"):
        # Sections and charts whose data come later than the run's own.
        page.wait_for_selector(READY["run"])
        page.wait_for_selector("#heat-title")
        page.get_by_role("heading", name="Steps behind, over time").wait_for()
    page.wait_for_load_state("networkidle")
    page.wait_for_function("() => !document.querySelector('main').innerText.includes('Reading')")
    if view != "runs":
        page.wait_for_function("() => document.querySelectorAll('.chart svg').length > 1")
    if view == "step":
        page.get_by_text("Counted.").wait_for()
    if view == "time":
        page.get_by_role("button", name="by time").click()
        page.get_by_role("img", name="by time").first.wait_for()
        page.wait_for_function("""() => document.querySelector('[role=img][aria-label*="by step"]') === null""")
    page.wait_for_function(DRAWN)
    page.evaluate(STILL)
    return context, page


def sections_of(page):
    """Where each part of the page is, by what it is called."""
    return page.evaluate("""() => [...document.querySelectorAll(
        'header, .trouble, .verdict, main > .tiles, main > section')].map((e) => {
      const box = e.getBoundingClientRect();
      return [e.getAttribute('aria-labelledby') ?? e.className ?? e.tagName,
              Math.round(box.left), Math.round(box.top + window.scrollY), Math.round(box.width), Math.round(box.height)];
    })""")


def cells_of(tools, picture, kind, scale, boxes):
    """Of each section the mean colours of its cells."""
    found = tools.evaluate(CELLS, [data_url(picture, kind), CELL, scale, boxes])
    tables = [np.array(sums).reshape(down, across, 4) for across, down, sums in found]
    return {box[0]: table[..., :3] / np.maximum(1, table[..., 3:]) for box, table in zip(boxes, tables)}


def rows_at(cells, count):
    """The same cells, so many rows of them: what is a little higher is pressed together."""
    at = np.minimum((np.arange(count) * len(cells) / count).astype(int), len(cells) - 1)
    return cells[at]


def difference(now, before):
    """What is wrong with a section, or nothing."""
    if abs(len(now) - len(before)) > max(1, TOLERATED_HEIGHT * len(before)):
        return f"is {len(now)} cells high, was {len(before)}"
    width = min(now.shape[1], before.shape[1])
    apart = np.abs(rows_at(now, len(before))[:, :width] - before[:, :width]).max(axis=2)
    # Text and lines that moved into the next cell are where they were.
    for down, across in ((1, 0), (-1, 0), (0, 1), (0, -1)):
        moved = np.roll(rows_at(now, len(before))[:, :width], (down, across), axis=(0, 1))
        apart = np.minimum(apart, np.abs(moved - before[:, :width]).max(axis=2))
    far = float((apart > TOLERATED_CELL).mean())
    if apart.mean() > TOLERATED_MEAN or far > TOLERATED_CELLS:
        return f"differs by {apart.mean():.1f} on average, {100 * far:.1f} % of its cells by much"
    return None


# For `make test-all`: what is wrong with texts and data is found by test_page.
@pytest.mark.slow
@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("view", VIEWS)
def test_it_looks_as_it_did(browser, tools, view, look):
    context, page = shown(browser, view, look)
    try:
        assert page.evaluate(LABELS) == []
        wide = page.evaluate("() => document.documentElement.scrollWidth - window.innerWidth")
        assert wide <= 0, "the page is wider than the screen"
        boxes = sections_of(page)
        picture = page.screenshot(full_page=True, animations="disabled")
    finally:
        context.close()
    if folder := os.environ.get("WISP_SCREENSHOTS"):
        pathlib.Path(folder, f"{view}-{look}.png").write_bytes(picture)
    kept = PICTURES / f"{view}-{look}.webp"
    layout = PICTURES / "layout.json"
    known = json.loads(layout.read_text()) if layout.exists() else {}
    if os.environ.get("WISP_NEW_PICTURES"):
        PICTURES.mkdir(exist_ok=True)
        kept.write_bytes(base64.b64decode(tools.evaluate(SHRINK, [data_url(picture, "png"), 0.5])))
        layout.write_text(json.dumps({**known, kept.stem: boxes}, indent=0, sort_keys=True) + "\n")
        return
    then = known[kept.stem]
    assert [box[0] for box in boxes] == [box[0] for box in then], "another order of sections"
    before = cells_of(tools, kept.read_bytes(), "webp", 2, then)
    now = cells_of(tools, picture, "png", 1, boxes)
    wrong = {name: told for name in now if (told := difference(now[name], before[name]))}
    assert wrong == {}


def test_a_chart_without_its_data_is_noticed(browser, tools):
    context, page = shown(browser, "run", "light-1440")
    try:
        boxes = sections_of(page)
        whole = cells_of(tools, page.screenshot(full_page=True, animations="disabled"), "png", 1, boxes)
        assert "heat-title" in whole
        page.add_style_tag(content=".chart svg g[fill] > *, .chart svg path, .chart svg rect { visibility: hidden }")
        empty = cells_of(tools, page.screenshot(full_page=True, animations="disabled"), "png", 1, boxes)
        page.add_style_tag(content=":root { --ok-page: #fde0dd; --bad-page: #dff3e4 }")
        swapped = cells_of(tools, page.screenshot(full_page=True, animations="disabled"), "png", 1, boxes)
    finally:
        context.close()
    told = {name: difference(empty[name], whole[name]) for name in whole}
    assert told["heat-title"] and told["tiles"] is None
    assert difference(swapped["verdict critical"], whole["verdict critical"])


def test_pictures_stay_small():
    assert sum(path.stat().st_size for path in PICTURES.iterdir()) < 2_000_000
