// Which share of each layer changed at each step.

import * as Plot from "@observablehq/plot";
import { useContext } from "preact/hooks";

import type { Layers } from "./api";
import { percent, plural, share, whole, wholeTicks } from "./format";
import { Home } from "./place";
import { Chart } from "./plot";

interface Cell {
  seq: number;
  step: number;
  layer: string;
  changed: number;
  elements: number;
  share: number;
}

const MOST_COLUMNS = 120;

/** "layer 2" before "layer 10"; what is in no layer comes first. */
function inOrder(names: string[]): string[] {
  const rank = (name: string) => (/^layer \d+$/.test(name) ? Number(name.slice(6)) : -1);
  return [...names].sort((a, b) => rank(a) - rank(b) || a.localeCompare(b));
}

/** How wide a step is drawn: as far as to the nearest other one. */
function columnWidth(steps: number[]): number {
  const ascending = [...new Set(steps)].sort((a, b) => a - b);
  let least = Infinity;
  for (let i = 1; i < ascending.length; i += 1) least = Math.min(least, ascending[i]! - ascending[i - 1]!);
  return least === Infinity ? 1 : least;
}

export function HeatMap({ layers }: { layers: Layers | null }) {
  const home = useContext(Home);
  if (!layers) return <p class="empty">Reading what changed in each layer…</p>;
  const newest = layers.steps.filter((s) => !s.error).slice(-MOST_COLUMNS);
  const lost = layers.steps.filter((s) => s.error);
  // After a rewind a step is there twice; what holds is the newer.
  const steps = [...new Map(newest.map((s) => [s.step, s])).values()];
  // A delta names only what changed: the rest did not.
  const cells: Cell[] = steps.flatMap((s) => {
    const changed = new Map(s.cells.map(([layer, count]) => [layer, count]));
    return layers.layers.map(({ name, elements }, layer) => ({
      seq: s.seq,
      step: s.step,
      layer: name,
      changed: changed.get(layer) ?? 0,
      elements,
      share: (changed.get(layer) ?? 0) / Math.max(1, elements),
    }));
  });
  const names = inOrder([...new Set(cells.map((c) => c.layer))]);
  const column = columnWidth(steps.map((s) => s.step));
  const low = Math.min(...steps.map((s) => s.step));
  const high = Math.max(...steps.map((s) => s.step));
  const most = cells.reduce((best, c) => (best && c.share <= best.share ? best : c), cells[0]);
  const least = cells.reduce((best, c) => (best && c.share >= best.share ? best : c), cells[0]);
  const label = most
    ? `Share of each of ${plural(names.length, "layer")} that changed at each of ${plural(steps.length, "step")}; ` +
      `the most in ${most.layer} at step ${most.step}, ${share(most.changed, most.elements)}`
    : "";
  return (
    <section aria-labelledby="heat-title">
      <h2 id="heat-title">Share of each layer that changed</h2>
      {most && least && (
        <p class="note" data-figure="heat-range">
          From {share(least.changed, least.elements)} ({least.layer}, step {whole(least.step)}) to{" "}
          {share(most.changed, most.elements)} ({most.layer}, step {whole(most.step)}); the colours span this range.
          {layers.steps.length - lost.length > MOST_COLUMNS && ` The newest ${MOST_COLUMNS} steps.`}
        </p>
      )}
      {cells.length === 0 ? (
        <p class="empty">
          {layers.pending > 0 ? "Reading the deltas…" : "No step has changed any weight yet."}
        </p>
      ) : (
        <Chart<Cell>
          label={label}
          height={Math.max(190, 84 + names.length * Math.max(12, Math.min(20, 520 / names.length)))}
          watch={[layers]}
          onPick={(cell) => {
            window.location.hash = `${home}/step/${cell.seq}`;
          }}
          options={(width) => {
            // On a phone half of the width is the picture's.
            const letters = width < 500 ? 16 : 28;
            const shown = (name: string) => (name.length > letters ? `…${name.slice(1 - letters)}` : name);
            const widest = 14 + 6.6 * Math.max(0, ...names.map((name) => shown(name).length));
            return {
              marginLeft: widest,
              marginBottom: 40,
              marginTop: 8,
              padding: 0,
              x: {
                label: "step",
                domain: [low - column / 2, high + column / 2],
                ticks: wholeTicks(low, high, width - widest),
                tickFormat: whole,
                tickSize: 0,
              },
              y: { type: "band", label: null, domain: names, tickSize: 0, tickFormat: shown },
              color: {
                type: "linear",
                scheme: "viridis",
                domain: [least!.share, Math.max(most!.share, least!.share + 1e-12)],
                legend: true,
                label: "share changed",
                width: Math.min(320, width),
                ticks: 4,
                tickFormat: percent,
              },
              marks: [
                Plot.rect(cells, {
                  x1: (c: Cell) => c.step - column / 2,
                  x2: (c: Cell) => c.step + column / 2,
                  y: "layer",
                  fill: "share",
                  insetLeft: steps.length < 60 ? 0.5 : 0,
                  insetRight: steps.length < 60 ? 0.5 : 0,
                  insetTop: 0.5,
                  insetBottom: 0.5,
                }),
                Plot.tip(
                  cells,
                  Plot.pointer({
                    x: "step",
                    y: "layer",
                    fill: "var(--card)",
                    title: (c: Cell) =>
                      `${c.layer}, step ${whole(c.step)}\n${whole(c.changed)} of ${whole(c.elements)}\n${share(c.changed, c.elements)}`,
                  }),
                ),
              ],
            };
          }}
        />
      )}
      {layers.pending > 0 && cells.length > 0 && (
        <p class="note" role="status">
          {plural(layers.pending, "more step")} to read.
        </p>
      )}
      {lost.length > 0 && (
        <p class="note">
          {plural(lost.length, "step")} could not be read: {lost[0]!.error}
        </p>
      )}
    </section>
  );
}
