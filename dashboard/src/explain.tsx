// The four ideas as pictures to play with. Formulas and measured figures, no animation for its own
// sake.

import * as Plot from "@observablehq/plot";
import { useState } from "preact/hooks";

import { bytes, duration, percent, plural, power, ratio, share, spaced, tick, whole } from "./format";
import { APPLY_SECONDS, CHANGED_SHARE, DELTA_BYTES, DIFF_SECONDS, MODEL_BYTES } from "./measured";
import { Chart } from "./plot";
import { changedShare, type Size, sizes } from "./rounding";

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
      <Chart<Size>
        label={`Weights by size; ${share(changed, 1)} of them change at a learning rate of ${rate.toExponential(1)}`}
        height={250}
        watch={[exponent]}
        options={(width) => ({
          marginLeft: 56,
          marginBottom: 40,
          x: { type: "band", label: "size of the weight", tickFormat: power, ticks: spaced(all.map((s) => s.binade), width) },
          y: { label: null, grid: true, tickFormat: percent, ticks: 5 },
          marks: [
            Plot.barY(all, { x: "binade", y: "weights", fill: "var(--quiet)", insetLeft: 1, insetRight: 1 }),
            Plot.barY(all, {
              x: "binade",
              y: (s: Size) => s.weights * s.chance,
              fill: "var(--delta)",
              insetLeft: 1,
              insetRight: 1,
            }),
            Plot.text(all, {
              x: "binade",
              y: "weights",
              dy: -8,
              fontSize: 10,
              fill: "currentColor",
              text: (s: Size) => (s.weights > 0.004 && width > 600 ? share(s.chance, 1) : ""),
            }),
          ],
        })}
      />
      <p class="note">
        Computed: weights from a normal distribution of width 0.035, as in a language model's matrices; moves of the
        learning rate times a ratio of spread 0.22, as noisy gradients give it. The step that is measured below was
        made the same way, and changed {share(CHANGED_SHARE, 1)}. Grey: all weights of that size; coloured: those that change. The
        steps of a run show the same picture, counted.
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
          marginBottom: 36,
          x: { label: "step" },
          y: { label: null, grid: true, tickFormat: tick, ticks: 5 },
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
        Measured sizes of a 0.6B model: {bytes(MODEL_BYTES)} whole, {bytes(DELTA_BYTES)} a delta (
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
    { how: "wisp", part: "find what changed", seconds: DIFF_SECONDS, kind: "merged" },
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
        <li class="merged">find what changed</li>
        <li class="delta">upload, download</li>
        <li class="anchor">apply</li>
      </ul>
      <Chart
        label={`Seconds of one sync: broadcast ${duration(1000 * sum("broadcast"))}, wisp ${duration(1000 * sum("wisp"))}`}
        height={150}
        watch={[replicas, log]}
        options={() => ({
          marginLeft: 76,
          marginBottom: 36,
          x: { label: "seconds", grid: true },
          y: { label: null, domain: ["broadcast", "wisp"] },
          marks: [
            Plot.barX(rows, { x: "seconds", y: "how", fill: (r: (typeof rows)[number]) => `var(--${r.kind})`, insetTop: 4, insetBottom: 4 }),
          ],
        })}
      />
      <p class="note">Times to find and to apply are measured on two cores; the links are computed from the sizes above.</p>
    </section>
  );
}

function Pauses() {
  const [between, setBetween] = useState(20);
  const [log, setLog] = useState(9);
  const whole_s = (8 * MODEL_BYTES) / 10 ** log;
  const rows: { how: string; from: number; to: number; kind: string }[] = [];
  const horizon = 120;
  for (let at = between; at < horizon; at += between) {
    rows.push({ how: "broadcast", from: at, to: Math.min(at + whole_s, at + between, horizon), kind: "full" });
    rows.push({ how: "wisp", from: at, to: Math.min(at + APPLY_SECONDS, at + between, horizon), kind: "anchor" });
  }
  const lost = (seconds: number) => Math.min(1, seconds / between);
  return (
    <section aria-labelledby="pauses-title">
      <h2 id="pauses-title">4. When generation stands still</h2>
      <p>
        Fetching and checking happen while tokens are generated. Only the apply needs the engine to stand still; a
        broadcast stops it for as long as the transfer takes.
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
      <p role="status">
        Time lost to pauses: broadcast {share(lost(whole_s), 1)}, wisp {share(lost(APPLY_SECONDS), 1)}.
      </p>
      <Chart
        label={`Pauses in two minutes: broadcast loses ${share(lost(whole_s), 1)} of the time, wisp ${share(lost(APPLY_SECONDS), 1)}`}
        height={150}
        watch={[between, log]}
        options={() => ({
          marginLeft: 76,
          marginBottom: 36,
          x: { label: "seconds", domain: [0, horizon] },
          y: { label: null, domain: ["broadcast", "wisp"] },
          marks: [
            Plot.barX(["broadcast", "wisp"], { x1: 0, x2: horizon, y: (h: string) => h, fill: "var(--quiet)", fillOpacity: 0.45, insetTop: 6, insetBottom: 6 }),
            Plot.barX(rows, { x1: "from", x2: "to", y: "how", fill: (r: (typeof rows)[number]) => `var(--${r.kind})`, insetTop: 6, insetBottom: 6 }),
          ],
        })}
      />
      <p class="note">
        Coloured: standing still. The apply is the measured {duration(1000 * APPLY_SECONDS)} for a 0.6B model in memory
        on two cores, decoding included.
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
