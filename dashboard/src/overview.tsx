// The figures at the top, and the timeline of commits.

import * as Plot from "@observablehq/plot";
import type { ComponentChildren } from "preact";

import type { Commit, Run } from "./api";
import { age, bytes, decades, plural, ratio, share, tick, whole } from "./format";
import { Chart } from "./plot";

function Tile(props: { name: string; value: string; note?: ComponentChildren; id: string }) {
  return (
    <div class="tile">
      <dt>{props.name}</dt>
      <dd data-figure={props.id}>{props.value}</dd>
      {props.note && <dd class="note">{props.note}</dd>}
    </div>
  );
}

export function Tiles({ run, commits }: { run: Run; commits: Commit[] }) {
  const deltas = commits.filter((c) => c.makes_state && c.delta_bytes > 0);
  const sent = deltas.reduce((sum, c) => sum + c.delta_bytes, 0);
  const mean = deltas.length ? sent / deltas.length : 0;
  const changed = deltas.reduce((sum, c) => sum + c.changed_elements, 0);
  const elements = deltas.reduce((sum, c) => sum + c.total_elements, 0);
  const dead = run.replicas.filter((r) => r.health === "dead").length;
  return (
    <dl class="tiles">
      <Tile
        id="step"
        name="Newest step"
        value={run.head_step === null ? "none yet" : whole(run.head_step)}
        note={
          run.head_step === null
            ? "nothing was published"
            : `${run.expired ? "expired, " : ""}committed ${age(run.head_age_ms)} ago`
        }
      />
      <Tile
        id="delta-bytes"
        name="Mean delta"
        value={deltas.length ? bytes(Math.round(mean)) : "–"}
        note={`${plural(deltas.length, "step")}, ${bytes(sent)} in all`}
      />
      <Tile
        id="full-bytes"
        name="Full weights"
        value={run.full_bytes ? bytes(run.full_bytes) : "–"}
        note={run.full_bytes_from === "estimate" ? "estimated: no whole anchor" : "what a broadcast sends"}
      />
      <Tile
        id="ratio"
        name="Smaller by"
        value={run.full_bytes && mean ? ratio(run.full_bytes, mean) : "–"}
        note="than full weights"
      />
      <Tile id="changed" name="Weights changed" value={share(changed, elements)} note="per step, on average" />
      <Tile
        id="join"
        name="A late joiner reads"
        value={run.join_bytes ? bytes(run.join_bytes) : "–"}
        note={plural(run.join_objects, "object")}
      />
      <Tile
        id="replicas"
        name="Replicas"
        value={whole(run.replicas.length)}
        note={dead ? <strong class="bad">{plural(dead, "replica")} silent</strong> : "none silent"}
      />
      <Tile
        id="stored"
        name="In the bucket"
        value={bytes(run.stored_bytes)}
        note={plural(run.stored_objects, "object")}
      />
    </dl>
  );
}

interface Bar {
  seq: number;
  step: number;
  kind: "delta" | "anchor";
  bytes: number;
  changed: number;
  total: number;
}

/** Labels of steps under positions of commits: steps may go back, commits never do. */
export function stepTicks(seqs: Map<number, number>, width: number): number[] {
  const all = [...seqs.keys()].sort((a, b) => a - b);
  const room = Math.max(2, Math.floor(width / 70));
  const every = Math.max(1, Math.ceil(all.length / room));
  return all.filter((_, index) => index % every === 0);
}

export function Timeline({ run, commits }: { run: Run; commits: Commit[] }) {
  const bars: Bar[] = commits.flatMap((c) => {
    const about = { seq: c.seq, step: c.step, changed: c.changed_elements, total: c.total_elements };
    const found: Bar[] = [];
    if (c.delta_bytes) found.push({ ...about, kind: "delta", bytes: c.delta_bytes });
    if (c.anchor_bytes) found.push({ ...about, kind: "anchor", bytes: c.anchor_bytes });
    return found;
  });
  const first = commits[0]?.seq ?? 0;
  const merged = run.merged_deltas.filter((delta) => delta.to_seq >= first);
  const steps = new Map(bars.map((bar) => [bar.seq, bar.step]));
  const deltas = bars.filter((bar) => bar.kind === "delta");
  const label =
    `Bytes of each commit on a logarithmic scale: ${plural(deltas.length, "delta")}, ` +
    `${plural(bars.length - deltas.length, "anchor")}, ${plural(merged.length, "merged delta")}` +
    (run.full_bytes ? `, full weights ${bytes(run.full_bytes)}` : "");
  return (
    <section aria-labelledby="timeline-title">
      <h2 id="timeline-title">Bytes on the wire</h2>
      <ul class="legend" aria-hidden="true">
        <li class="delta">delta</li>
        <li class="anchor">anchor</li>
        {merged.length > 0 && <li class="merged">merged delta, over the steps it spans</li>}
        {run.full_bytes > 0 && <li class="full line">full weights, {bytes(run.full_bytes)}</li>}
      </ul>
      {bars.length === 0 ? (
        <p class="empty">No weights were published yet. They appear here without a reload.</p>
      ) : (
        <Chart<Bar>
          label={label}
          height={280}
          watch={[commits, run.full_bytes, run.merged_deltas]}
          onPick={(bar) => {
            if (bar.kind === "delta") window.location.hash = `/step/${bar.seq}`;
          }}
          options={(width) => {
            const smallest = Math.min(...bars.map((b) => b.bytes), ...merged.map((r) => r.bytes));
            const floor = smallest / 3;
            const largest = Math.max(run.full_bytes, ...bars.map((b) => b.bytes));
            const ticks = decades(floor, largest * 1.6);
            const thick = Math.max(2, Math.min(26, (0.7 * width) / (steps.size + 1)));
            return {
              marginLeft: 62,
              marginBottom: 36,
              x: {
                label: "step",
                ticks: stepTicks(steps, width),
                tickFormat: (seq: number) => String(steps.get(seq) ?? ""),
                insetLeft: thick,
                insetRight: thick,
              },
              y: { type: "log", domain: [floor, largest * 1.6], axis: null },
              marks: [
                Plot.gridY(ticks),
                // d3 leaves labels out on a logarithmic axis; these are few enough.
                Plot.axisY(ticks, { label: null, text: ticks.map(tick) }),
                run.full_bytes
                  ? Plot.ruleY([run.full_bytes], { stroke: "var(--full)", strokeDasharray: "5 4" })
                  : null,
                Plot.ruleX(bars, {
                  x: "seq",
                  y1: () => floor,
                  y2: "bytes",
                  stroke: (bar: Bar) => `var(--${bar.kind})`,
                  strokeWidth: thick,
                }),
                Plot.ruleY(merged, {
                  x1: "from_seq",
                  x2: "to_seq",
                  y: "bytes",
                  stroke: "var(--merged)",
                  strokeWidth: 3,
                  marker: "dot",
                }),
                Plot.tip(
                  bars,
                  Plot.pointerX({
                    x: "seq",
                    y: "bytes",
                    fill: "var(--card)",
                    title: (bar: Bar) =>
                      `${bar.kind} of step ${whole(bar.step)}\n${bytes(bar.bytes)}` +
                      (bar.kind === "delta"
                        ? `\n${whole(bar.changed)} changed (${share(bar.changed, bar.total)})`
                        : ""),
                  }),
                ),
              ],
            };
          }}
        />
      )}
    </section>
  );
}
