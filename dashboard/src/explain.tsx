// The four ideas as pictures to play with. Formulas and measured figures, no animation for its own
// sake.

import * as Plot from "@observablehq/plot";
import { useState } from "preact/hooks";

import { bytes, decades, duration, percent, plural, power, ratio, share, spaced, tick, whole } from "./format";
import {
  APPLY_SECONDS,
  CHANGED_SHARE,
  COMMIT_SECONDS,
  DELTA_BYTES,
  ENGINE_BYTES,
  ENGINE_CHANGED_SHARE,
  LOADER_SECONDS,
  MODEL_BYTES,
  PAUSE_SECONDS,
} from "./measured";
import { Chart } from "./plot";
import { changedShare, type Size, sizes } from "./rounding";

/** Shares below this are not drawn. */
const FAINTEST = 1e-6;

interface SliderProps {
  name: string;
  min: number;
  max: number;
  step: number;
  value: number;
  text: string;
  onChange: (value: number) => void;
}

function Slider({ name, min, max, step, value, text, onChange }: SliderProps) {
  return (
    <label>
      <span>
        {name}: <strong>{text}</strong>
      </span>
      <input
        type="range"
        min={min}
        max={max}
        step={step}
        value={value}
        aria-valuetext={text}
        onInput={(event) => onChange(Number(event.currentTarget.value))}
      />
    </label>
  );
}

function Rounding() {
  const [exponent, setExponent] = useState(-6);
  const rate = 10 ** exponent;
  const all = sizes(0.035, rate);
  const changed = changedShare(all);
  return (
    <section aria-labelledby="rounding-title">
      <h2 id="rounding-title">1. bf16 hides small updates</h2>
      <p>
        Adam moves each weight by a part of the learning rate. A bf16 number of size 2ᵉ has neighbours 2ᵉ⁻⁷ apart:
        a smaller move is usually rounded away, and the served weight stays bit for bit the same.
      </p>
      <div class="controls">
        <Slider name="Learning rate" min={-8} max={-3} step={0.1} value={exponent} text={rate.toExponential(1)} onChange={setExponent} />
      </div>
      <p role="status">
        <strong data-figure="rounding">{share(changed, 1)}</strong> of the weights change in a step.
      </p>
      <ul class="legend" aria-hidden="true">
        <li class="all line">all weights</li>
        <li class="delta line">those that change</li>
      </ul>
      <Chart<Size>
        label={`Weights by size; ${share(changed, 1)} of them change at a learning rate of ${rate.toExponential(1)}`}
        height={260}
        watch={[exponent]}
        options={(width) => {
          const rows = all.filter((s) => s.weights >= 1e-4);
          const seen = rows.filter((s) => s.weights * s.chance >= FAINTEST);
          const ticks = decades(FAINTEST, 1);
          return {
            marginLeft: 62,
            marginTop: 28,
            marginBottom: 40,
            x: { type: "point", label: "size of the weight", tickFormat: power, domain: rows.map((s) => s.binade), ticks: spaced(rows.map((s) => s.binade), width) },
            y: { type: "log", domain: [FAINTEST, 1], axis: null },
            marks: [
              Plot.gridY(ticks),
              Plot.axisY(ticks, { label: "share of all weights (log)", text: ticks.map(percent) }),
              Plot.line(rows, { x: "binade", y: "weights", stroke: "var(--soft)", strokeWidth: 1.5, marker: "dot" }),
              Plot.line(seen, { x: "binade", y: (s: Size) => s.weights * s.chance, stroke: "var(--delta)", strokeWidth: 2.5, marker: "dot" }),
              Plot.tip(
                rows,
                Plot.pointerX({
                  x: "binade",
                  y: "weights",
                  fill: "var(--card)",
                  title: (s: Size) => `${power(s.binade)} to ${power(s.binade + 1)}\n${share(s.weights, 1)} of all weights\n${share(s.chance, 1)} of these change`,
                }),
              ),
            ],
          };
        }}
      />
      <p class="note">
        Computed: weights from a normal distribution of width 0.035, as in a language model's matrices; moves of the
        learning rate times a ratio of spread 0.22, as noisy gradients give it. The step that is measured below was
        made the same way, and changed {share(CHANGED_SHARE, 1)}. The steps of a run show the same picture, counted.
      </p>
    </section>
  );
}

function Bucket() {
  const [steps, setSteps] = useState(200);
  const [every, setEvery] = useState(50);
  const history = Array.from({ length: steps }, (_, index) => {
    const step = index + 1;
    const anchors = 1 + Math.floor(index / every);
    return {
      step,
      anchors: anchors * MODEL_BYTES,
      deltas: (step - anchors) * DELTA_BYTES,
      // The newest anchor and the deltas since.
      join: MODEL_BYTES + (index % every) * DELTA_BYTES,
      broadcast: step * MODEL_BYTES,
    };
  });
  const last = history.at(-1)!;
  return (
    <section aria-labelledby="bucket-title">
      <h2 id="bucket-title">2. Anchors and deltas fill a bucket</h2>
      <p>
        Each step adds a delta; now and then a whole state, an anchor, lets a late joiner start without walking
        all of history. By default wisp writes an anchor when the way since the last one has grown as long as an
        anchor; compaction and retention then keep the bucket small.
      </p>
      <div class="controls">
        <Slider name="Steps" min={20} max={1000} step={10} value={steps} text={whole(steps)} onChange={setSteps} />
        <Slider name="An anchor every" min={5} max={400} step={5} value={every} text={plural(every, "step")} onChange={setEvery} />
      </div>
      <p role="status">
        {bytes(last.anchors + last.deltas)} in the bucket, of which {bytes(last.deltas)} are deltas; whole weights at each
        step would be {bytes(last.broadcast)}. A late joiner reads {bytes(last.join)}.
      </p>
      <ul class="legend" aria-hidden="true">
        <li class="anchor">anchors</li>
        <li class="delta">deltas</li>
      </ul>
      <Chart
        label={`Bytes in the bucket after each of ${steps} steps: anchors ${bytes(last.anchors)}, deltas ${bytes(last.deltas)}`}
        height={220}
        watch={[steps, every]}
        options={() => ({
          marginLeft: 62,
          marginTop: 28,
          marginBottom: 40,
          x: { label: "step" },
          y: { label: "bytes in the bucket", grid: true, tickFormat: tick, ticks: 5 },
          marks: [
            Plot.areaY(history, { x: "step", y: "anchors", fill: "var(--anchor)", curve: "step-after" }),
            Plot.areaY(history, {
              x: "step",
              y1: "anchors",
              y2: (h: (typeof history)[number]) => h.anchors + h.deltas,
              fill: "var(--delta)",
              curve: "step-after",
            }),
          ],
        })}
      />
      <p class="note">
        Measured sizes of a 0.6B model: {bytes(MODEL_BYTES)} whole, {bytes(DELTA_BYTES)} a delta of a swift run (
        {share(CHANGED_SHARE, 1)} changed). Nothing merged or removed in this picture.
      </p>
    </section>
  );
}

function Sync() {
  const [replicas, setReplicas] = useState(8);
  const [log, setLog] = useState(9);
  const link = 10 ** log;
  const seconds = (size: number) => (8 * size) / link;
  // The sender's link carries one copy for each replica, or one for the bucket; the others pull.
  const rows = [
    { how: "broadcast", part: "send the whole model to each", seconds: replicas * seconds(MODEL_BYTES), kind: "full" },
    { how: "wisp", part: "find, code and commit what changed", seconds: COMMIT_SECONDS, kind: "merged" },
    { how: "wisp", part: "upload once", seconds: seconds(DELTA_BYTES), kind: "delta" },
    { how: "wisp", part: "each downloads", seconds: seconds(DELTA_BYTES), kind: "delta" },
    { how: "wisp", part: "apply", seconds: APPLY_SECONDS, kind: "anchor" },
  ];
  const sum = (how: string) => rows.filter((r) => r.how === how).reduce((total, r) => total + r.seconds, 0);
  return (
    <section aria-labelledby="sync-title">
      <h2 id="sync-title">3. One sync, end to end</h2>
      <p>
        A broadcast sends the model to every replica through the trainer's link. wisp uploads one small file once,
        whatever the number of replicas; each takes it from the bucket over its own link.
      </p>
      <div class="controls">
        <Slider name="Replicas" min={1} max={64} step={1} value={replicas} text={whole(replicas)} onChange={setReplicas} />
        <Slider
          name="Link"
          min={7}
          max={11}
          step={0.1}
          value={log}
          text={link >= 1e9 ? `${(link / 1e9).toPrecision(2)} Gbit/s` : `${Math.round(link / 1e6)} Mbit/s`}
          onChange={setLog}
        />
      </div>
      <p role="status">
        Broadcast {duration(1000 * sum("broadcast"))}, wisp {duration(1000 * sum("wisp"))}:{" "}
        {ratio(sum("broadcast"), sum("wisp"))}
      </p>
      <ul class="legend" aria-hidden="true">
        <li class="full">whole model</li>
        <li class="merged">find and code what changed</li>
        <li class="delta">upload, download</li>
        <li class="anchor">apply</li>
      </ul>
      <Chart
        label={`Seconds of one sync: broadcast ${duration(1000 * sum("broadcast"))}, wisp ${duration(1000 * sum("wisp"))}`}
        height={150}
        watch={[replicas, log]}
        options={() => ({
          marginLeft: 76,
          marginBottom: 40,
          x: { label: "seconds", grid: true },
          y: { label: null, domain: ["broadcast", "wisp"] },
          marks: [
            Plot.barX(rows, { x: "seconds", y: "how", fill: (r: (typeof rows)[number]) => `var(--${r.kind})`, insetTop: 4, insetBottom: 4 }),
          ],
        })}
      />
      <p class="note">
        Measured on two cores, in a swift run: {duration(1000 * COMMIT_SECONDS)} from the trainer's call to the commit, and{" "}
        {duration(1000 * APPLY_SECONDS)} from there to the replica's memory, decoded and proven; the links are computed
        from the sizes above.
      </p>
    </section>
  );
}

function Pauses() {
  const [between, setBetween] = useState(20);
  const [log, setLog] = useState(9);
  const horizon = 120;
  const ways = [
    { how: "broadcast", seconds: (8 * ENGINE_BYTES) / 10 ** log, kind: "full" },
    { how: "patch loader", seconds: LOADER_SECONDS, kind: "anchor" },
    { how: "wisp", seconds: PAUSE_SECONDS, kind: "delta" },
  ];
  const rows: { how: string; from: number; to: number; kind: string }[] = [];
  for (let at = between; at < horizon; at += between) {
    for (const { how, seconds, kind } of ways) {
      rows.push({ how, from: at, to: Math.min(at + seconds, at + between, horizon), kind });
    }
  }
  const lost = (seconds: number) => share(Math.min(1, seconds / between), 1);
  const told = ways.map(({ how, seconds }) => `${how} ${lost(seconds)}`).join(", ");
  return (
    <section aria-labelledby="pauses-title">
      <h2 id="pauses-title">4. When generation stands still</h2>
      <p>
        Fetching, checking and decoding happen while tokens are generated. Only putting the new values in place needs
        the engine to stand still; a broadcast stops it for as long as the transfer takes.
      </p>
      <div class="controls">
        <Slider name="A step every" min={2} max={60} step={1} value={between} text={`${between} s`} onChange={setBetween} />
        <Slider
          name="Link"
          min={7}
          max={11}
          step={0.1}
          value={log}
          text={10 ** log >= 1e9 ? `${(10 ** log / 1e9).toPrecision(2)} Gbit/s` : `${Math.round(10 ** log / 1e6)} Mbit/s`}
          onChange={setLog}
        />
      </div>
      <p role="status" data-figure="pauses">
        Time lost to pauses: {told}.
      </p>
      <Chart
        label={`Pauses in two minutes; time lost: ${told}`}
        height={180}
        watch={[between, log]}
        options={(width) => {
          // A pause of milliseconds would be thinner than a hair.
          const thin = (2.5 * horizon) / Math.max(1, width - 110);
          return {
            marginLeft: 92,
            marginBottom: 40,
            x: { label: "seconds", domain: [0, horizon] },
            y: { label: null, domain: ways.map((way) => way.how), tickSize: 0 },
            marks: [
              Plot.barX(ways, { x1: 0, x2: horizon, y: "how", fill: "var(--quiet)", fillOpacity: 0.45, insetTop: 6, insetBottom: 6 }),
              Plot.barX(rows, {
                x1: "from",
                x2: (r: (typeof rows)[number]) => Math.max(r.to, r.from + thin),
                y: "how",
                fill: (r: (typeof rows)[number]) => `var(--${r.kind})`,
                insetTop: 6,
                insetBottom: 6,
              }),
            ],
          };
        }}
      />
      <p class="note">
        Coloured: standing still, drawn at least two pixels wide. Measured on a vLLM engine of{" "}
        {bytes(ENGINE_BYTES)} on two cores, {share(ENGINE_CHANGED_SHARE, 1)} changed per step: wisp{" "}
        {duration(1000 * PAUSE_SECONDS)}, the same changes through vLLM's own patch loader{" "}
        {duration(1000 * LOADER_SECONDS)}. The broadcast is computed from the size and the link.
      </p>
    </section>
  );
}

export function Explainers() {
  return (
    <>
      <Rounding />
      <Bucket />
      <Sync />
      <Pauses />
    </>
  );
}
