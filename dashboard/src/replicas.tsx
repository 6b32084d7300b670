// Who follows the run, how they are, and how they were.

import * as Plot from "@observablehq/plot";

import type { Beats, Replica, Run } from "./api";
import { age, clock, duration, durations, plural, timeTick, whole, wholeTicks } from "./format";
import { Chart } from "./plot";

const WORDS: Record<Replica["health"], string> = {
  ok: "following",
  behind: "behind",
  dead: "silent",
  stopped: "stopped",
};

function why(replica: Replica): string {
  switch (replica.health) {
    case "ok":
      return "Its last heartbeat is recent.";
    case "behind":
      return "It lives, and has not reached the newest step.";
    case "dead":
      return `No heartbeat for ${age(replica.seen_ms)}${replica.every_ms ? `, one is due every ${age(replica.every_ms)}` : ""}.`;
    case "stopped":
      return "It ended in good order.";
  }
}

interface Beat {
  id: string;
  time: number;
  lag: number;
  pause: number | null;
}

// Told apart by form as well as colour; more than these would be told apart by nobody.
const SHOWN = 6;
const SERIES = ["var(--delta)", "var(--anchor)", "var(--merged)", "var(--ok)", "var(--full)", "var(--soft)"];
const FORMS = ["circle", "square", "triangle", "diamond", "star", "cross"] as const;

function History({ beats }: { beats: Beats }) {
  const heard = beats.replicas.filter((replica) => replica.beats.length > 0);
  const spread = heard.some((replica) => replica.beats.length > 1);
  const kept = `Heartbeats that this dashboard saw since it was started, of the last ${age(beats.kept_ms)} at most.`;
  if (!spread) {
    return heard.length === 0 ? null : <p class="note">Lag and pause over time are drawn from the second heartbeat on. {kept}</p>;
  }
  const worst = [...heard].sort((a, b) => (b.beats.at(-1)?.[1] ?? 0) - (a.beats.at(-1)?.[1] ?? 0) || a.id.localeCompare(b.id));
  const shown = worst.slice(0, SHOWN);
  const rows: Beat[] = shown.flatMap(({ id, beats: told }) => told.map(([time, lag, pause]) => ({ id, time, lag, pause })));
  const order = new Map(shown.map(({ id }, index) => [id, index]));
  const colour = (b: Beat) => SERIES[order.get(b.id) ?? 0]!;
  const form = (b: Beat) => FORMS[order.get(b.id) ?? 0]!;
  const pauses = rows.filter((b) => b.pause !== null && b.pause > 0);
  const most = Math.max(1, ...rows.map((b) => b.lag));
  const dots = rows.length > 300 ? 0 : 3;
  const x = (width: number): Plot.ScaleOptions => ({
    type: "utc",
    label: "time (UTC)",
    ticks: Math.max(2, Math.floor(width / 110)),
    tickFormat: timeTick(Math.max(...rows.map((b) => b.time)) - Math.min(...rows.map((b) => b.time))),
    insetLeft: 8,
    insetRight: 8,
  });
  return (
    <>
      <h3>Steps behind, over time</h3>
      <ul class="legend" aria-hidden="true">
        {shown.map(({ id }, index) => (
          <li key={id} class={`series ${FORMS[index]}`} style={`--colour:${SERIES[index]}`}>
            {id}
          </li>
        ))}
        {worst.length > SHOWN && <li class="plain">and {whole(worst.length - SHOWN)} more that are no worse</li>}
      </ul>
      <Chart<Beat>
        label={`Steps behind of ${plural(shown.length, "replica")} over time, at most ${whole(most)}`}
        height={190}
        watch={[beats]}
        options={(width) => ({
          marginLeft: 62,
          marginTop: 28,
          marginBottom: 40,
          x: x(width - 80),
          y: { label: "steps behind", domain: [0, most], ticks: wholeTicks(0, most, 350), tickFormat: whole, grid: true },
          marks: [
            Plot.line(rows, { x: "time", y: "lag", z: "id", stroke: colour, curve: "step-after", strokeWidth: 1.5 }),
            dots ? Plot.dot(rows, { x: "time", y: "lag", fill: colour, symbol: form, r: dots }) : null,
            Plot.tip(
              rows,
              Plot.pointer({
                x: "time",
                y: "lag",
                fill: "var(--card)",
                title: (b: Beat) => `${b.id}\n${clock(b.time)}\n${plural(b.lag, "step")} behind`,
              }),
            ),
          ],
        })}
      />
      {pauses.length > 0 && (
        <>
          <h3>Last pause, over time</h3>
          <Chart<Beat>
            label={`How long ${plural(shown.length, "replica")} stood still for a switch, at most ${duration(Math.max(...pauses.map((b) => b.pause!)))}`}
            height={190}
            watch={[beats]}
            options={(width) => {
              const values = pauses.map((b) => b.pause!);
              const low = Math.min(...values) / 1.6;
              const high = Math.max(...values) * 1.6;
              const ticks = durations(low, high);
              return {
                marginLeft: 62,
                marginTop: 28,
                marginBottom: 40,
                x: x(width - 80),
                y: { type: "log", domain: [low, high], axis: null },
                marks: [
                  Plot.gridY(ticks),
                  Plot.axisY(ticks, { label: "pause (log)", text: ticks.map(duration) }),
                  Plot.dot(pauses, { x: "time", y: "pause", fill: colour, symbol: form, r: dots || 2 }),
                  Plot.tip(
                    pauses,
                    Plot.pointer({
                      x: "time",
                      y: "pause",
                      fill: "var(--card)",
                      title: (b: Beat) => `${b.id}\n${clock(b.time)}\n${duration(b.pause!)}`,
                    }),
                  ),
                ],
              };
            }}
          />
        </>
      )}
      <p class="note">{kept}</p>
    </>
  );
}

export function Replicas({ run, beats }: { run: Run; beats: Beats | null }) {
  return (
    <section aria-labelledby="replicas-title">
      <h2 id="replicas-title">Replicas</h2>
      {run.replicas.length === 0 ? (
        <p class="empty">
          No replica has left a heartbeat here. Followers write one when they have a name:{" "}
          <code>wisp follow … --id NAME</code>
        </p>
      ) : (
        <div class="scroll" role="region" aria-label="Table of replicas" tabIndex={0}>
          <table class="stack">
            <caption class="visually-hidden">{plural(run.replicas.length, "replica")}</caption>
            <thead>
              <tr>
                <th scope="col">replica</th>
                <th scope="col">health</th>
                <th scope="col" class="number">step</th>
                <th scope="col" class="number">steps behind</th>
                <th scope="col" class="number">last heard</th>
                <th scope="col" class="number">last pause</th>
              </tr>
            </thead>
            <tbody>
              {run.replicas.map((replica) => (
                <tr key={replica.id} data-replica={replica.id} data-health={replica.health}>
                  <th scope="row">{replica.id}</th>
                  <td class="wrap" data-label="health">
                    <span class={`badge ${replica.health}`} title={why(replica)}>
                      {WORDS[replica.health]}
                    </span>
                    {replica.health === "dead" && <span class="note"> {why(replica)}</span>}
                  </td>
                  <td class="number" data-label="step">{whole(replica.step)}</td>
                  <td class="number" data-label="steps behind">{whole(replica.lag_steps)}</td>
                  <td class="number" data-label="last heard">{age(replica.seen_ms)} ago</td>
                  <td class="number" data-label="last pause">
                    {replica.pause_ms === null ? "not told" : duration(replica.pause_ms)}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {beats && <History beats={beats} />}
      {run.branches.length > 0 && (
        <p class="note">
          {run.branches.length === 1 ? "Another run stands" : `${whole(run.branches.length)} other runs stand`} on states of
          this one.
        </p>
      )}
    </section>
  );
}
