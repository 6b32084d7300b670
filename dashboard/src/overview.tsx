// The figures at the top.

import type { ComponentChildren } from "preact";

import type { Commit, Run } from "./api";
import { age, bytes, plural, ratio, share, whole } from "./format";

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
          run.head_step === null || run.head_age_ms === null
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
        value={run.join_bytes === null ? "–" : bytes(run.join_bytes)}
        note={run.join_objects === null ? "there is no state to join" : plural(run.join_objects, "object")}
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
        value={run.stored_bytes === null ? "…" : bytes(run.stored_bytes)}
        note={run.stored_objects === null ? "being counted" : plural(run.stored_objects, "object")}
      />
    </dl>
  );
}
