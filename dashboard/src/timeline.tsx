// Commits along steps or along time: bytes of each, and the time between them.

import * as Plot from "@observablehq/plot";
import { useContext, useState } from "preact/hooks";

import type { Commit, Run } from "./api";
import { age, bytes, clock, decades, durations, plural, share, tick, timeTick, whole, wholeTicks } from "./format";
import { Home } from "./place";
import { Chart } from "./plot";

type Axis = "step" | "time";

interface Point {
  seq: number;
  step: number;
  time: number;
  kind: "delta" | "anchor";
  bytes: number;
  changed: number;
  total: number;
}

interface Gap {
  seq: number;
  step: number;
  time: number;
  interval: number;
}

function AxisChoice({ axis, onChange }: { axis: Axis; onChange: (axis: Axis) => void }) {
  return (
    <div class="choice" role="group" aria-label="Horizontal axis">
      {(["step", "time"] as const).map((one) => (
        <button key={one} type="button" aria-pressed={axis === one} onClick={() => onChange(one)}>
          by {one}
        </button>
      ))}
    </div>
  );
}

/** The horizontal scale of both pictures. Steps stand where their numbers are, whatever lies between. */
function xScale(axis: Axis, points: { step: number; time: number }[], width: number): Plot.ScaleOptions {
  const values = points.map((point) => (axis === "step" ? point.step : point.time));
  const low = Math.min(...values);
  const high = Math.max(...values);
  // One step alone has no width of its own.
  const room = low === high ? (axis === "step" ? 1 : 60_000) : 0;
  const domain = [low - room, high + room];
  if (axis === "step") {
    return { label: "step", domain, ticks: wholeTicks(low, high, width), tickFormat: whole, insetLeft: 8, insetRight: 8 };
  }
  return {
    type: "utc",
    label: "time (UTC)",
    domain,
    ticks: Math.max(2, Math.floor(width / 110)),
    tickFormat: timeTick(high - low),
    insetLeft: 8,
    insetRight: 8,
  };
}

function Bytes({ run, commits, axis }: { run: Run; commits: Commit[]; axis: Axis }) {
  const home = useContext(Home);
  const points: Point[] = commits.flatMap((c) => {
    const about = { seq: c.seq, step: c.step, time: c.time_ms, changed: c.changed_elements, total: c.total_elements };
    const found: Point[] = [];
    if (c.delta_bytes) found.push({ ...about, kind: "delta", bytes: c.delta_bytes });
    if (c.anchor_bytes) found.push({ ...about, kind: "anchor", bytes: c.anchor_bytes });
    return found;
  });
  const times = new Map(commits.map((c) => [c.seq, c.time_ms]));
  const first = commits[0]?.seq ?? 0;
  const merged = run.merged_deltas
    .filter((delta) => delta.from_seq >= first)
    .map((delta) => ({
      from: axis === "step" ? delta.from_step : (times.get(delta.from_seq) ?? 0),
      to: axis === "step" ? delta.to_step : (times.get(delta.to_seq) ?? 0),
      bytes: delta.bytes,
    }));
  const deltas = points.filter((point) => point.kind === "delta");
  const label =
    `Bytes of each commit by ${axis}, on a logarithmic scale: ${plural(deltas.length, "delta")}, ` +
    `${plural(points.length - deltas.length, "anchor")}, ${plural(merged.length, "merged delta")}` +
    (run.full_bytes ? `, full weights ${bytes(run.full_bytes)}` : "");
  if (points.length === 0) {
    return <p class="empty">No weights were published yet. They appear here without a reload.</p>;
  }
  return (
    <>
      <ul class="legend" aria-hidden="true">
        <li class="delta dot">delta</li>
        <li class="anchor diamond">anchor</li>
        {merged.length > 0 && <li class="merged line">merged delta, over the steps it spans</li>}
        {run.full_bytes !== null && <li class="full line">full weights, {bytes(run.full_bytes)}</li>}
      </ul>
      <Chart<Point>
        label={label}
        height={290}
        watch={[commits, run.full_bytes, run.merged_deltas, axis]}
        onPick={(point) => {
          if (point.kind === "delta") window.location.hash = `${home}/step/${point.seq}`;
        }}
        options={(width) => {
          const smallest = Math.min(...points.map((p) => p.bytes), ...merged.map((r) => r.bytes));
          const largest = Math.max(run.full_bytes ?? 0, ...points.map((p) => p.bytes));
          const ticks = decades(smallest / 1.6, largest * 1.6);
          return {
            marginLeft: 62,
            marginTop: 28,
            marginBottom: 40,
            x: xScale(axis, points, width - 80),
            y: { type: "log", domain: [smallest / 1.6, largest * 1.6], axis: null },
            marks: [
              Plot.gridY(ticks),
              // d3 leaves labels out on a logarithmic axis; these are few enough.
              Plot.axisY(ticks, { label: "bytes of a commit (log)", text: ticks.map(tick) }),
              run.full_bytes
                ? Plot.ruleY([run.full_bytes], { stroke: "var(--full)", strokeDasharray: "5 4" })
                : null,
              Plot.ruleY(merged, { x1: "from", x2: "to", y: "bytes", stroke: "var(--merged)", strokeWidth: 2, marker: "dot" }),
              Plot.dot(points, {
                x: axis,
                y: "bytes",
                symbol: (p: Point) => (p.kind === "anchor" ? "diamond" : "circle"),
                fill: (p: Point) => `var(--${p.kind})`,
                r: points.length > 300 ? 2 : points.length > 100 ? 3 : 4,
              }),
              Plot.tip(
                points,
                Plot.pointer({
                  x: axis,
                  y: "bytes",
                  fill: "var(--card)",
                  title: (p: Point) =>
                    `${p.kind} of step ${whole(p.step)}\n${clock(p.time)}\n${bytes(p.bytes)}` +
                    (p.kind === "delta" ? `\n${whole(p.changed)} changed (${share(p.changed, p.total)})` : ""),
                }),
              ),
            ],
          };
        }}
      />
    </>
  );
}

function Cadence({ run, commits, axis }: { run: Run; commits: Commit[]; axis: Axis }) {
  const states = commits.filter((c) => c.makes_state);
  const gaps: Gap[] = states.slice(1).map((c, index) => ({
    seq: c.seq,
    step: c.step,
    time: c.time_ms,
    // Two machines wrote them, maybe, and clocks differ.
    interval: Math.max(1, c.time_ms - states[index]!.time_ms),
  }));
  if (gaps.length < 2) return null;
  const usual = run.interval_ms;
  const longest = gaps.reduce((best, gap) => (gap.interval > best.interval ? gap : best));
  return (
    <>
      <h3>Time between steps</h3>
      <p class="note">
        {usual !== null && <>Usually {age(usual)} (the median of the newest). </>}
        The longest shown is {age(longest.interval)}, before step {whole(longest.step)}.
      </p>
      <Chart<Gap>
        label={`Time between steps by ${axis}; usually ${usual === null ? "unknown" : age(usual)}, at most ${age(longest.interval)}`}
        height={200}
        watch={[commits, axis, usual]}
        options={(width) => {
          const least = Math.min(...gaps.map((gap) => gap.interval)) / 1.5;
          const most = longest.interval * 1.5;
          const ticks = durations(least, most);
          return {
            marginLeft: 62,
            marginTop: 28,
            marginBottom: 40,
            x: xScale(axis, gaps, width - 80),
            y: { type: "log", domain: [least, most], axis: null },
            marks: [
              Plot.gridY(ticks),
              Plot.axisY(ticks, { label: "since the step before (log)", text: ticks.map(age) }),
              usual === null || usual < least || usual > most
                ? null
                : Plot.ruleY([usual], { stroke: "var(--soft)", strokeDasharray: "5 4" }),
              Plot.dot(gaps, { x: axis, y: "interval", fill: "var(--delta)", r: gaps.length > 300 ? 2 : 3 }),
              Plot.tip(
                gaps,
                Plot.pointer({
                  x: axis,
                  y: "interval",
                  fill: "var(--card)",
                  title: (gap: Gap) => `step ${whole(gap.step)}\n${clock(gap.time)}\n${age(gap.interval)} after the step before`,
                }),
              ),
            ],
          };
        }}
      />
    </>
  );
}

export function Timeline({ run, commits }: { run: Run; commits: Commit[] }) {
  const [axis, setAxis] = useState<Axis>("step");
  return (
    <section aria-labelledby="timeline-title">
      <div class="titled">
        <h2 id="timeline-title">Bytes on the wire</h2>
        <AxisChoice axis={axis} onChange={setAxis} />
      </div>
      <Bytes run={run} commits={commits} axis={axis} />
      <Cadence run={run} commits={commits} axis={axis} />
    </section>
  );
}
