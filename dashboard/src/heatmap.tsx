// Which share of each layer changed at each step.

import * as Plot from "@observablehq/plot";
import type { Layers } from "./api";
import { percent, plural, share, whole } from "./format";
import { Chart } from "./plot";
import { stepTicks } from "./overview";

interface Cell {
  seq: number;
  step: number;
  layer: string;
  changed: number;
  elements: number;
}

const MOST_COLUMNS = 120;

/** "layer 2" before "layer 10"; what is in no layer comes first. */
function inOrder(names: string[]): string[] {
  const rank = (name: string) => (/^layer \d+$/.test(name) ? Number(name.slice(6)) : -1);
  return [...names].sort((a, b) => rank(a) - rank(b) || a.localeCompare(b));
}

export function HeatMap({ layers }: { layers: Layers | null }) {
  if (!layers) return <p class="empty">Reading what changed in each layer…</p>;
  const steps = layers.steps.filter((s) => !s.error).slice(-MOST_COLUMNS);
  const lost = layers.steps.filter((s) => s.error);
  // A delta names only what changed: the rest did not.
  const cells: Cell[] = steps.flatMap((s) => {
    const changed = new Map(s.cells.map(([layer, count]) => [layer, count]));
    return layers.layers.map(({ name, elements }, layer) => ({
      seq: s.seq,
      step: s.step,
      layer: name,
      changed: changed.get(layer) ?? 0,
      elements,
    }));
  });
  const names = inOrder([...new Set(cells.map((c) => c.layer))]);
  const numbers = new Map(steps.map((s) => [s.seq, s.step]));
  const widest = Math.min(190, 14 + 6.4 * Math.max(0, ...names.map((n) => n.length)));
  const most = cells.reduce((best, c) => (best && c.changed / c.elements <= best.changed / best.elements ? best : c), cells[0]);
  const label = most
    ? `Share of each of ${plural(names.length, "layer")} that changed at each of ${plural(steps.length, "step")}; ` +
      `the most in ${most.layer} at step ${most.step}, ${share(most.changed, most.elements)}`
    : "";
  return (
    <section aria-labelledby="heat-title">
      <h2 id="heat-title">Share of each layer that changed</h2>
      {cells.length === 0 ? (
        <p class="empty">
          {layers.pending > 0 ? "Reading the deltas…" : "No step has changed any weight yet."}
        </p>
      ) : (
        <Chart<Cell>
          label={label}
          height={Math.max(170, 74 + names.length * Math.max(9, Math.min(20, 520 / names.length)))}
          watch={[layers]}
          onPick={(cell) => {
            window.location.hash = `/step/${cell.seq}`;
          }}
          options={(width) => ({
            marginLeft: widest,
            marginBottom: 36,
            padding: 0,
            x: {
              type: "band",
              label: "step",
              domain: steps.map((s) => s.seq),
              ticks: stepTicks(numbers, width - widest),
              tickFormat: (seq: number) => String(numbers.get(seq) ?? ""),
              tickSize: 0,
            },
            y: {
              type: "band",
              label: null,
              domain: names,
              tickSize: 0,
              tickFormat: (name: string) => (name.length > 28 ? `…${name.slice(-27)}` : name),
            },
            color: {
              type: "sqrt",
              scheme: "viridis",
              domain: [0, most ? most.changed / Math.max(1, most.elements) : 1],
              legend: true,
              label: "share changed",
              ticks: 3,
              tickFormat: percent,
            },
            marks: [
              Plot.cell(cells, {
                x: "seq",
                y: "layer",
                fill: (c: Cell) => c.changed / Math.max(1, c.elements),
                inset: 0.5,
              }),
              Plot.tip(
                cells,
                Plot.pointer({
                  x: "seq",
                  y: "layer",
                  fill: "var(--card)",
                  title: (c: Cell) =>
                    `${c.layer}, step ${whole(c.step)}\n${whole(c.changed)} of ${whole(c.elements)}\n${share(c.changed, c.elements)}`,
                }),
              ),
            ],
          })}
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
