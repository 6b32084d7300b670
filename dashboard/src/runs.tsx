// Several runs at a glance: each with its verdict, and the way to it.

import type { RunLine } from "./api";
import { age, plural, whole } from "./format";
import { VerdictBadge } from "./verdict";

const RANK = { critical: 0, warning: 1, ok: 2 };
const rank = (line: RunLine): number => (line.verdict ? RANK[line.verdict.severity] : 3);

/** What all addresses begin with is said once. */
function sharedPrefix(urls: string[]): string {
  const first = urls[0] ?? "";
  let end = first.length;
  for (const url of urls) while (!url.startsWith(first.slice(0, end))) end -= 1;
  return first.slice(0, first.slice(0, end).lastIndexOf("/") + 1);
}

export function Runs({ runs }: { runs: RunLine[] }) {
  const shared = sharedPrefix(runs.map((line) => line.url));
  const worst = [...runs].sort((a, b) => rank(a) - rank(b) || a.id - b.id);
  const ill = runs.filter((line) => rank(line) < 2).length;
  return (
    <section aria-labelledby="runs-title">
      <h2 id="runs-title">{plural(runs.length, "run")}</h2>
      <p class="note">
        {shared && <>Under {shared}. </>}
        {ill === 0 ? "All are well." : `${whole(ill)} of ${whole(runs.length)} want attention; these come first.`}
      </p>
      <div class="scroll" role="region" aria-label="Table of runs" tabIndex={0}>
        <table class="stack">
          <caption class="visually-hidden">{plural(runs.length, "run")}, the worst first</caption>
          <thead>
            <tr>
              <th scope="col">run</th>
              <th scope="col">verdict</th>
              <th scope="col" class="number">step</th>
              <th scope="col" class="number">last step</th>
              <th scope="col" class="number">usually every</th>
              <th scope="col" class="number">replicas</th>
              <th scope="col" class="number">furthest behind</th>
            </tr>
          </thead>
          <tbody>
            {worst.map((line) => (
              <tr key={line.id} data-run={line.id} data-severity={line.verdict?.severity}>
                <th scope="row">
                  <a href={`#/run/${line.id}`}>{line.url.slice(shared.length) || line.url}</a>
                </th>
                <td class="wrap" data-label="verdict">
                  <VerdictBadge verdict={line.verdict} />{" "}
                  <span class="note">{line.verdict?.text}</span>
                </td>
                <td class="number" data-label="step">{line.head_step === null ? "–" : whole(line.head_step)}</td>
                <td class="number" data-label="last step">
                  {line.head_age_ms === null ? "–" : `${age(line.head_age_ms)} ago`}
                </td>
                <td class="number" data-label="usually every">
                  {line.interval_ms === null ? "–" : age(line.interval_ms)}
                </td>
                <td class="number" data-label="replicas">{line.replicas === null ? "–" : whole(line.replicas)}</td>
                <td class="number" data-label="furthest behind">{line.lag_steps === null ? "–" : plural(line.lag_steps, "step")}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
