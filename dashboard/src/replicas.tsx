// Who follows the run, and how they are.

import type { Replica, Run } from "./api";
import { age, duration, plural, whole } from "./format";

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

export function Replicas({ run }: { run: Run }) {
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
          <table>
            <caption class="visually-hidden">{plural(run.replicas.length, "replica")}</caption>
            <thead>
              <tr>
                <th scope="col">replica</th>
                <th scope="col">health</th>
                <th scope="col" class="number">step</th>
                <th scope="col" class="number">steps behind</th>
                <th scope="col" class="number">last pause</th>
                <th scope="col" class="number">last heard</th>
              </tr>
            </thead>
            <tbody>
              {run.replicas.map((replica) => (
                <tr key={replica.id} data-replica={replica.id} data-health={replica.health}>
                  <th scope="row">{replica.id}</th>
                  <td>
                    <span class={`badge ${replica.health}`} title={why(replica)}>
                      {WORDS[replica.health]}
                    </span>
                    {replica.health === "dead" && <span class="note"> {why(replica)}</span>}
                  </td>
                  <td class="number">{whole(replica.step)}</td>
                  <td class="number">{whole(replica.lag_steps)}</td>
                  <td class="number">
                    {replica.pause_ms === null ? "not told" : duration(replica.pause_ms)}
                  </td>
                  <td class="number">{age(replica.seen_ms)} ago</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {run.branches.length > 0 && (
        <p class="note">{plural(run.branches.length, "other run")} stands on states of this one.</p>
      )}
    </section>
  );
}
