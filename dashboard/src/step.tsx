// One step: what changed in which tensor, at what price, and why so little.

import * as Plot from "@observablehq/plot";
import { useEffect, useState } from "preact/hooks";

import { api, type Binade, type Commit, type Exponents, isReport, type Run, type StepDetail } from "./api";
import { bytes, decades, percent, plural, power, ratio, share, short, spaced, whole } from "./format";
import { words } from "./live";
import { Chart } from "./plot";

function useAnswer<T>(ask: () => Promise<T>, watch: unknown[]): [T | null, string | null] {
  const [answer, setAnswer] = useState<[T | null, string | null]>([null, null]);
  useEffect(() => {
    let late = false;
    setAnswer([null, null]);
    ask().then(
      (value) => !late && setAnswer([value, null]),
      (error: unknown) => !late && setAnswer([null, words(error)]),
    );
    return () => {
      late = true;
    };
  }, watch);
  return answer;
}

function Counted({ found }: { found: Exponents }) {
  const all = found.binades.reduce((sum, b) => sum + b.elements, 0);
  // A long tail of few, tiny weights would take half of the axis.
  const rows = found.binades.filter((b) => b.elements >= all * 1e-4);
  const part = (field: "elements" | "changed") => (b: Binade) => b[field] / all;
  const top = rows.reduce((best, b) => (b.elements > best.elements ? b : best), rows[0]!);
  const picture = (
    <Chart<Binade>
      label={`Weights by size, and the share of each size that changed; most weights are about ${power(top.binade)}, of which ${share(top.changed, top.elements)} changed`}
      height={230}
      watch={[found]}
      options={(width) => ({
        marginLeft: 62,
        marginBottom: 40,
        x: { type: "band", label: "size of the weight before the step", tickFormat: power, domain: rows.map((b) => b.binade), ticks: spaced(rows.map((b) => b.binade), width) },
        y: { label: null, grid: true, tickFormat: percent, ticks: 5 },
        marks: [
          Plot.barY(rows, { x: "binade", y: part("elements"), fill: "var(--quiet)", insetLeft: 1, insetRight: 1 }),
          Plot.barY(rows, { x: "binade", y: part("changed"), fill: "var(--delta)", insetLeft: 1, insetRight: 1 }),
          Plot.tip(
            rows,
            Plot.pointerX({
              x: "binade",
              y: part("elements"),
              fill: "var(--card)",
              title: (b: Binade) =>
                `${power(b.binade)} to ${power(b.binade + 1)}\n${whole(b.elements)} weights\n${whole(b.changed)} changed (${share(b.changed, b.elements)})`,
            }),
          ),
        ],
      })}
    />
  );  const seen = rows.filter((b) => b.changed > 0);
  const shares = (
    <Chart<Binade>
      label={`Share of the weights of each size that changed, from ${seen.map((b) => `${share(b.changed, b.elements)} at ${power(b.binade)}`).at(0)} to ${seen.map((b) => `${share(b.changed, b.elements)} at ${power(b.binade)}`).at(-1)}`}
      height={200}
      watch={[found]}
      options={(width) => {
        const values = seen.map((b) => b.changed / b.elements);
        const ticks = decades(Math.min(...values) / 2, Math.min(1, 2 * Math.max(...values)));
        return {
          marginLeft: 62,
          marginBottom: 40,
          x: { type: "band", label: "size of the weight before the step", tickFormat: power, domain: rows.map((b) => b.binade), ticks: spaced(rows.map((b) => b.binade), width) },
          y: { type: "log", axis: null },
          marks: [
            Plot.gridY(ticks),
            Plot.axisY(ticks, { label: null, text: ticks.map(percent) }),
            Plot.line(seen, { x: "binade", y: (b: Binade) => b.changed / b.elements, stroke: "var(--delta)", marker: "dot" }),
            Plot.tip(
              seen,
              Plot.pointerX({
                x: "binade",
                y: (b: Binade) => b.changed / b.elements,
                fill: "var(--card)",
                title: (b: Binade) => `${power(b.binade)} to ${power(b.binade + 1)}\n${share(b.changed, b.elements)} changed`,
              }),
            ),
          ],
        };
      }}
    />
  );
  return (
    <>
      <h3>How many weights there are of each size</h3>
      {picture}
      {seen.length > 0 && (
        <>
          <h3>Share of them that changed</h3>
          {shares}
        </>
      )}
    </>
  );
}

function Forecast({ detail }: { detail: StepDetail }) {
  return (
    <Chart
      label="Chance to change by size of the weight, as the encoder forecast it"
      height={240}
      watch={[detail]}
      options={(width) => ({
        marginLeft: 62,
        marginBottom: 40,
        x: { type: "band", label: "size of the weight before the step", tickFormat: power, ticks: spaced(detail.forecast.map((b) => b.binade), width) },
        y: { label: null, grid: true, tickFormat: percent, ticks: 5 },
        marks: [
          Plot.barY(detail.forecast, { x: "binade", y: "share", fill: "var(--delta)", insetLeft: 1, insetRight: 1 }),
          Plot.tip(
            detail.forecast,
            Plot.pointerX({
              x: "binade",
              y: "share",
              fill: "var(--card)",
              title: (b: { binade: number; share: number }) =>
                `${power(b.binade)} to ${power(b.binade + 1)}\n${share(b.share, 1)} expected to change`,
            }),
          ),
        ],
      })}
    />
  );
}

function Sizes({ detail, run }: { detail: StepDetail; run: Run }) {
  const [found, trouble] = useAnswer<Exponents | null>(
    () => (run.exponents ? api.exponents(detail.seq) : Promise.resolve(null)),
    [detail.seq, run.exponents],
  );
  return (
    <section aria-labelledby="sizes-title">
      <h2 id="sizes-title">Why so few change</h2>
      <p>
        A bf16 number keeps 7 bits after the leading one, so a step smaller than 1/256 of a weight rounds
        away. Every doubling of a weight's size halves its chance to change.
      </p>
      {run.exponents && !found && !trouble && (
        <p class="empty" role="status">
          Counting against the state before this step. The first time this fetches an anchor.
        </p>
      )}
      {trouble && (
        <p class="empty" role="alert">
          {trouble}
        </p>
      )}
      {found && (
        <>
          <Counted found={found} />
          <p class="note">Grey: all weights of that size; coloured: those that changed. Counted.</p>
        </>
      )}
      {!found && detail.forecast.length > 0 && (
        <>
          <Forecast detail={detail} />
          <p class="note">
            The encoder's own forecast, read from the delta.
            {!run.exponents &&
              (isReport
                ? " Make the report with --work DIR to count them instead."
                : " How many weights there are of each size is not in a delta: start the dashboard with --work DIR, which keeps a replica there, to count them.")}
          </p>
        </>
      )}
    </section>
  );
}

function TensorTable({ detail }: { detail: StepDetail }) {
  const [order, setOrder] = useState<"name" | "changed" | "share" | "bits">("changed");
  const [shown, setShown] = useState(30);
  const bits = (t: { bytes: number; changed: number }) => (8 * t.bytes) / Math.max(1, t.changed);
  const rows = [...detail.tensors].sort((a, b) => {
    if (order === "name") return a.name.localeCompare(b.name);
    if (order === "changed") return b.changed - a.changed;
    if (order === "bits") return bits(b) - bits(a);
    return b.changed / Math.max(1, b.elements) - a.changed / Math.max(1, a.elements);
  });
  const head = (key: typeof order, text: string, number = true) => (
    <th scope="col" class={number ? "number" : ""} aria-sort={order === key ? (key === "name" ? "ascending" : "descending") : "none"}>
      <button type="button" class="sort" onClick={() => setOrder(key)}>
        {text}
        <span aria-hidden="true">{order === key ? (key === "name" ? " ▲" : " ▼") : ""}</span>
      </button>
    </th>
  );
  return (
    <section aria-labelledby="tensors-title">
      <h2 id="tensors-title">Tensors that changed</h2>
      <div class="scroll" role="region" aria-label="Table of tensors" tabIndex={0}>
        <table>
          <caption class="visually-hidden">{plural(rows.length, "tensor")}</caption>
          <thead>
            <tr>
              {head("name", "tensor", false)}
              <th scope="col">type</th>
              {head("changed", "changed")}
              {head("share", "share")}
              <th scope="col" class="number">bytes</th>
              {head("bits", "bits per change")}
            </tr>
          </thead>
          <tbody>
            {rows.slice(0, shown).map((t) => (
              <tr key={t.name} data-tensor={t.name}>
                <th scope="row" class="long">{t.name}</th>
                <td class="note">
                  {t.dtype} {t.shape.length ? t.shape.map(whole).join(" × ") : ""}
                </td>
                <td class="number">{whole(t.changed)}</td>
                <td class="number">{share(t.changed, t.elements)}</td>
                <td class="number">{bytes(t.bytes)}</td>
                <td class="number">{bits(t).toFixed(2)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {rows.length > shown && (
        <button type="button" onClick={() => setShown(rows.length)}>
          Show all {whole(rows.length)} tensors
        </button>
      )}
    </section>
  );
}

export function Step({ seq, run, commits }: { seq: number; run: Run; commits: Commit[] }) {
  const [detail, trouble] = useAnswer(() => api.step(seq), [seq]);
  const steps = commits.filter((c) => c.delta_bytes > 0);
  const at = steps.findIndex((c) => c.seq === seq);
  const before = at > 0 ? steps[at - 1] : undefined;
  const after = at >= 0 ? steps[at + 1] : undefined;
  return (
    <>
      <nav class="steps" aria-label="Steps">
        {before ? <a href={`#/step/${before.seq}`}>← step {whole(before.step)}</a> : <span />}
        <a href="#/">all steps</a>
        {after ? <a href={`#/step/${after.seq}`}>step {whole(after.step)} →</a> : <span />}
      </nav>
      {trouble && (
        <p class="empty" role="alert">
          {trouble}
        </p>
      )}
      {!detail && !trouble && (
        <p class="empty" role="status">
          Fetching and checking this delta…
        </p>
      )}
      {detail && (
        <>
          <section aria-labelledby="step-title">
            <h2 id="step-title">
              Step {whole(detail.step)}, commit {whole(detail.seq)}
            </h2>
            <dl class="tiles">
              <div class="tile">
                <dt>Changed</dt>
                <dd data-figure="step-changed">{whole(detail.changed_elements)}</dd>
                <dd class="note">{share(detail.changed_elements, detail.total_elements)} of {whole(detail.total_elements)}</dd>
              </div>
              <div class="tile">
                <dt>Delta</dt>
                <dd data-figure="step-bytes">{bytes(detail.file_bytes)}</dd>
                <dd class="note">{run.full_bytes ? `${ratio(run.full_bytes, detail.file_bytes)} smaller than full weights` : detail.codec}</dd>
              </div>
              <div class="tile">
                <dt>Bits per change</dt>
                <dd>{((8 * detail.file_bytes) / Math.max(1, detail.changed_elements)).toFixed(2)}</dd>
                <dd class="note">position and new value, {detail.codec}</dd>
              </div>
              <div class="tile">
                <dt>Proof</dt>
                <dd class="small">
                  <code title={detail.base ?? ""}>{short(detail.base ?? "none")}</code> →{" "}
                  <code title={detail.result ?? ""}>{short(detail.result ?? "none")}</code>
                </dd>
                <dd class="note">hash and seal hold; digests of the state before and after</dd>
              </div>
            </dl>
          </section>
          <Sizes detail={detail} run={run} />
          <TensorTable detail={detail} />
        </>
      )}
    </>
  );
}
