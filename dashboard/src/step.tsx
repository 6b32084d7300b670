// One step: what changed in which tensor, at what price, and why so little.

import * as Plot from "@observablehq/plot";
import { useContext, useEffect, useState } from "preact/hooks";

import { type Api, type Binade, type Commit, type Exponents, isReport, Refusal, type Run, type StepDetail } from "./api";
import { bytes, decades, percent, plural, power, ratio, share, short, spaced, whole } from "./format";
import { words } from "./live";
import { Home } from "./place";
import { Chart } from "./plot";

function useAnswer<T>(ask: () => Promise<T>, watch: unknown[]): [T | null, unknown] {
  const [answer, setAnswer] = useState<[T | null, unknown]>([null, null]);
  useEffect(() => {
    let late = false;
    setAnswer([null, null]);
    ask().then(
      (value) => !late && setAnswer([value, null]),
      (error: unknown) => !late && setAnswer([null, error ?? "unknown"]),
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
  const seen = rows.filter((b) => b.changed > 0);
  const top = rows.reduce((best, b) => (b.elements > best.elements ? b : best), rows[0]!);
  const picture = (
    <Chart<Binade>
      label={`Weights by size, and the share of each size that changed; most weights are about ${power(top.binade)}, of which ${share(top.changed, top.elements)} changed`}
      height={250}
      watch={[found]}
      options={(width) => {
        const low = Math.min(...rows.map(part("elements")), ...seen.map(part("changed"))) / 2;
        const ticks = decades(low, 1);
        return {
          marginLeft: 62,
          marginTop: 28,
          marginBottom: 40,
          x: { type: "point", label: "size of the weight before the step", tickFormat: power, domain: rows.map((b) => b.binade), ticks: spaced(rows.map((b) => b.binade), width) },
          y: { type: "log", domain: [low, 1], axis: null },
          marks: [
            Plot.gridY(ticks),
            Plot.axisY(ticks, { label: "share of all weights (log)", text: ticks.map(percent) }),
            Plot.line(rows, { x: "binade", y: part("elements"), stroke: "var(--soft)", strokeWidth: 1.5, marker: "dot" }),
            Plot.line(seen, { x: "binade", y: part("changed"), stroke: "var(--delta)", strokeWidth: 2.5, marker: "dot" }),
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
        };
      }}
    />
  );
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
          marginTop: 28,
          marginBottom: 40,
          x: { type: "point", label: "size of the weight before the step", tickFormat: power, domain: rows.map((b) => b.binade), ticks: spaced(rows.map((b) => b.binade), width) },
          y: { type: "log", axis: null },
          marks: [
            Plot.gridY(ticks),
            Plot.axisY(ticks, { label: "of the weights of this size (log)", text: ticks.map(percent) }),
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
      <h3>How many weights there are of each size, and how many changed</h3>
      <ul class="legend" aria-hidden="true">
        <li class="all line">all weights</li>
        <li class="delta line">those that changed</li>
      </ul>
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
        marginTop: 28,
        marginBottom: 40,
        x: { type: "band", label: "size of the weight before the step", tickFormat: power, ticks: spaced(detail.forecast.map((b) => b.binade), width) },
        y: { label: "share expected to change", grid: true, tickFormat: percent, ticks: 5 },
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

function Sizes({ api, detail, run }: { api: Api; detail: StepDetail; run: Run }) {
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
      {run.exponents && !found && trouble === null && (
        <p class="empty" role="status">
          Counting against the state before this step. The first time this fetches an anchor.
        </p>
      )}
      {trouble !== null && (
        <p class="empty" role="alert">
          {words(trouble)}
        </p>
      )}
      {found && (
        <>
          <Counted found={found} />
          <p class="note">Counted.</p>
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

/** Why there is nothing to show of a commit, in the words of this page. */
function Missing({ seq, run, commits, error }: { seq: number; run: Run; commits: Commit[]; error: unknown }) {
  const home = useContext(Home);
  const commit = commits.find((c) => c.seq === seq);
  const gone = error instanceof Refusal && (error.kind === "gap" || error.kind === "not_found");
  const oldest = commits[0];
  const told = ((): string => {
    if (seq > run.head_seq) {
      return `There is no commit ${whole(seq)} yet: the newest is ${whole(run.head_seq)}.`;
    }
    if (commit && commit.delta_bytes === 0) {
      return commit.kind === "anchor"
        ? `Commit ${whole(seq)} is an anchor: step ${whole(commit.step)} whole. Only steps with a delta have details.`
        : `Commit ${whole(seq)} is of the kind “${commit.kind}”, which changes no weights. Only steps with a delta have details.`;
    }
    if (gone && seq < run.floor_seq) {
      return `Commit ${whole(seq)} was given up: retention keeps this run from commit ${whole(run.floor_seq)} on.`;
    }
    if (gone && commit) {
      return `Step ${whole(commit.step)} is in the log, but its delta is no longer in the bucket.`;
    }
    if (gone && oldest && seq < oldest.seq) {
      return `Commit ${whole(seq)} is older than what this dashboard has read (commit ${whole(oldest.seq)}), and holds no delta that can still be fetched.`;
    }
    return words(error);
  })();
  return (
    <section aria-labelledby="missing-title">
      <h2 id="missing-title">Nothing to show for commit {whole(seq)}</h2>
      <p role="alert" data-figure="missing">{told}</p>
      <p>
        <a href={`#${home}`}>Back to the run</a>
      </p>
    </section>
  );
}

export function Step({ api, seq, run, commits }: { api: Api; seq: number; run: Run; commits: Commit[] }) {
  const home = useContext(Home);
  const [detail, trouble] = useAnswer(() => api.step(seq), [api, seq]);
  const steps = commits.filter((c) => c.delta_bytes > 0);
  const at = steps.findIndex((c) => c.seq === seq);
  const before = at > 0 ? steps[at - 1] : undefined;
  const after = at >= 0 ? steps[at + 1] : undefined;
  return (
    <>
      <nav class="steps" aria-label="Steps">
        {before ? <a href={`#${home}/step/${before.seq}`}>← step {whole(before.step)}</a> : <span />}
        <a href={`#${home}`}>all steps</a>
        {after ? <a href={`#${home}/step/${after.seq}`}>step {whole(after.step)} →</a> : <span />}
      </nav>
      {trouble !== null && <Missing seq={seq} run={run} commits={commits} error={trouble} />}
      {!detail && trouble === null && (
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
          <Sizes api={api} detail={detail} run={run} />
          <TensorTable detail={detail} />
        </>
      )}
    </>
  );
}
