// The one line on top: how the run is. The server judges; the page only shows it.

import type { Verdict as Judged } from "./api";
import { age, clock } from "./format";
import type { Trouble } from "./live";

const COLOURS: Record<Judged["severity"], string> = { ok: "green", warning: "amber", critical: "red" };

export function Verdict({ verdict }: { verdict: Judged }) {
  return (
    <div class={`verdict ${verdict.severity}`} role="status" data-figure="verdict" data-severity={verdict.severity}>
      <p>
        <strong>{COLOURS[verdict.severity]}</strong> {verdict.text}
      </p>
      {verdict.concerns.length > 1 && (
        <ul>
          {verdict.concerns.map((concern) => (
            <li key={concern.cause + concern.severity} class={concern.severity}>
              {concern.text}
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

export function VerdictBadge({ verdict }: { verdict: Judged | null }) {
  if (!verdict) return <span class="badge stopped">being read</span>;
  return <span class={`badge ${verdict.severity}`}>{COLOURS[verdict.severity]}</span>;
}

/** Old data stay below it, and it says how old they are. */
export function TroubleLine({ trouble }: { trouble: Trouble }) {
  const lasting = Date.now() - trouble.since;
  return (
    <p class="trouble" role="alert">
      Since {clock(trouble.since)}
      {lasting >= 10_000 && ` (${age(lasting)})`}: {trouble.message}{" "}
      {trouble.shown > 0 && <strong>What is shown was read at {clock(trouble.shown)}.</strong>}
    </p>
  );
}
