// The log: every commit names the one before by its hash.

import { useContext, useState } from "preact/hooks";

import type { Commit, Run } from "./api";
import { bytes, clock, plural, share, short, whole } from "./format";
import { Home } from "./place";

const SIGNATURES: Record<Commit["signature"], string> = {
  unsigned: "unsigned",
  unchecked: "signed, no key to check it with",
  trusted: "signed by a trusted key",
  certified: "signed, certified by a trusted root",
};

function Link({ commit }: { commit: Commit }) {
  if (commit.follows === true) return <span class="badge ok">follows {short(commit.previous)}</span>;
  if (commit.follows === false) return <span class="badge dead">does not follow</span>;
  return <span class="badge stopped">{commit.previous ? "oldest that is left" : "first"}</span>;
}

export function Chain({ run, commits }: { run: Run; commits: Commit[] }) {
  const home = useContext(Home);
  const [shown, setShown] = useState(25);
  const newest = [...commits].reverse();
  const broken = commits.filter((c) => c.follows === false).length;
  const unsigned = commits.filter((c) => c.signature === "unsigned").length;
  const checked = commits.filter((c) => c.signature === "trusted" || c.signature === "certified").length;
  return (
    <section aria-labelledby="chain-title">
      <h2 id="chain-title">The chain</h2>
      <p>
        <span class={`badge ${broken ? "dead" : "ok"}`} data-figure="chain">
          {broken ? `broken at ${plural(broken, "place")}` : `${plural(commits.length, "commit")}, unbroken`}
        </span>{" "}
        <span class={`badge ${unsigned === commits.length ? "stopped" : "ok"}`}>
          {unsigned === commits.length
            ? "unsigned run"
            : checked === commits.length
              ? "every signature holds"
              : `${whole(commits.length - unsigned)} signed, ${whole(checked)} checked against a trusted key`}
        </span>{" "}
        {run.mode === "single_writer" && (
          <span class="badge behind">single writer: the store cannot hold a race</span>
        )}
      </p>
      <p class="note">
        Run {run.run}. Each commit carries the SHA-256 of the one before and of everything it names. What
        follows was read and compared by this server; states are proven by replicas when they apply.
        {run.floor_seq > 0 && ` States before commit ${whole(run.floor_seq)} may be gone.`}
      </p>
      <div class="scroll" role="region" aria-label="Table of commits" tabIndex={0}>
        <table>
          <caption class="visually-hidden">Commits, newest first</caption>
          <thead>
            <tr>
              <th scope="col" class="number">commit</th>
              <th scope="col" class="number">step</th>
              <th scope="col">kind</th>
              <th scope="col" class="number">bytes</th>
              <th scope="col" class="number">changed</th>
              <th scope="col">hash</th>
              <th scope="col">proof</th>
              <th scope="col">state</th>
              <th scope="col">when, by whom</th>
            </tr>
          </thead>
          <tbody>
            {newest.slice(0, shown).map((c) => (
              <tr key={c.seq} data-seq={c.seq}>
                <td class="number">{whole(c.seq)}</td>
                <td class="number">
                  {c.delta_bytes > 0 ? (
                    <a href={`#${home}/step/${c.seq}`} aria-label={`Step ${c.step} in detail`}>
                      {whole(c.step)}
                    </a>
                  ) : (
                    whole(c.step)
                  )}
                </td>
                <td>
                  <span class={`kind ${c.kind}`}>{c.kind}</span>
                  {c.rewind_from !== null && <span class="note"> back from {whole(c.rewind_from)}</span>}
                </td>
                <td class="number">{c.delta_bytes + c.anchor_bytes ? bytes(c.delta_bytes + c.anchor_bytes) : "–"}</td>
                <td class="number">
                  {c.delta_bytes ? share(c.changed_elements, c.total_elements) : "–"}
                </td>
                <td>
                  <code title={c.hash}>{short(c.hash)}</code>
                </td>
                <td>
                  <Link commit={c} />{" "}
                  <span class="note" title={c.signer ?? undefined}>
                    {SIGNATURES[c.signature]}
                  </span>
                </td>
                <td>
                  <code title={c.state}>{short(c.state)}</code>
                </td>
                <td class="note">
                  {clock(c.time_ms)}, {c.writer}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {newest.length > shown && (
        <button type="button" onClick={() => setShown(shown + 100)}>
          Show {Math.min(100, newest.length - shown)} older commits
        </button>
      )}
    </section>
  );
}
