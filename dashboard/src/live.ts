// The state of the page: fetched once, then kept fresh by asking a small question every two seconds.

import type { RefObject } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import { type Api, apiOf, type Beats, type Commit, isReport, type Layers, Refusal, type Run, runLines, type RunLine } from "./api";

/** What is wrong right now; the last good data stay on the page. */
export interface Trouble {
  message: string;
  since: number;
  /** When what is shown was read; 0: nothing was. */
  shown: number;
}

export interface Live {
  api: Api;
  run: Run | null;
  commits: Commit[];
  layers: Layers | null;
  beats: Beats | null;
  trouble: Trouble | null;
}

const POLL_MS = 2000;
const RUNS_MS = 4000;

export const words = (error: unknown): string => (error instanceof Error ? error.message : String(error));
const explained = (error: unknown): string =>
  error instanceof Refusal ? error.message : `The page met an error: ${words(error)}`;

function joined(old: Layers | null, more: Layers): Layers {
  if (!old) return more;
  const known = new Map(old.steps.map((step) => [step.seq, step]));
  for (const step of more.steps) known.set(step.seq, step);
  const steps = [...known.values()].sort((a, b) => a.seq - b.seq);
  return { ...more, steps };
}

function joinedBeats(old: Beats | null, more: Beats): Beats {
  if (!old) return more;
  const known = new Map(old.replicas.map((replica) => [replica.id, replica.beats]));
  const oldest = Date.now() - more.kept_ms;
  const replicas = more.replicas.map(({ id, beats }) => ({
    id,
    beats: [...(known.get(id) ?? []), ...beats].filter(([heard]) => heard >= oldest),
  }));
  return { ...more, replicas };
}

/** When the browser has drawn what it was given. */
const drawn = (): Promise<void> =>
  new Promise((done) => {
    if (window.requestIdleCallback) window.requestIdleCallback(() => done(), { timeout: 2000 });
    else window.setTimeout(done, 200);
  });

const newestBeat = (beats: Beats | null): number =>
  Math.max(0, ...(beats?.replicas.map((replica) => replica.beats.at(-1)?.[0] ?? 0) ?? []));

export function useLive(id: number): Live {
  const empty: Live = { api: apiOf(id), run: null, commits: [], layers: null, beats: null, trouble: null };
  const [live, setLive] = useState<Live>(empty);

  useEffect(() => {
    let stopped = false;
    let timer = 0;
    let current: Live = { ...empty, api: apiOf(id) };
    const { api } = current;
    setLive(current);
    const put = (change: Partial<Live>) => {
      current = { ...current, ...change };
      if (!stopped) setLive(current);
    };
    /** The server's own trouble, which comes with the data that it still has. */
    const troubleOf = (run: { trouble: Run["trouble"] }): Trouble | null =>
      run.trouble && { message: run.trouble.message, since: run.trouble.since_ms, shown: run.trouble.read_ms };

    const takeCommits = async () => {
      const fresh = await api.commits(current.commits.at(-1)?.seq ?? 0);
      const run = await api.run();
      put({ run, commits: [...current.commits, ...fresh], trouble: troubleOf(run) });
    };
    const takeBeats = async () => {
      put({ beats: joinedBeats(current.beats, await api.beats(newestBeat(current.beats))) });
    };
    const takeLayers = async () => {
      do {
        const cursor = current.layers?.cursor ?? 0;
        put({ layers: joined(current.layers, await api.layers(cursor)) });
      } while (!stopped && (current.layers?.pending ?? 0) > 0);
    };
    const look = async () => {
      try {
        if (!current.run) {
          await takeCommits();
          await takeBeats();
          // Deltas are looked into for seconds; the page is there before.
          await drawn();
          await takeLayers();
        } else {
          const head = await api.head();
          if (head.head_seq !== current.run.head_seq) {
            await takeCommits();
            await takeBeats();
            await takeLayers();
          } else {
            // Sizes in the bucket are counted after the first answer.
            const run = current.run.stored_bytes === null ? await api.run() : { ...current.run, ...head };
            put({ run, trouble: troubleOf(head) });
            await takeBeats();
            if (current.layers === null || current.layers.pending > 0) await takeLayers();
          }
        }
      } catch (error) {
        const since = current.trouble?.since ?? Date.now();
        put({ trouble: { message: explained(error), since, shown: current.run?.read_ms ?? 0 } });
      }
      if (!stopped && !isReport) timer = window.setTimeout(look, POLL_MS);
    };
    void look();
    return () => {
      stopped = true;
      window.clearTimeout(timer);
    };
  }, [id]);
  return live;
}

/** All runs that this dashboard shows; null until that is known. */
export function useRuns(): { runs: RunLine[] | null; trouble: string | null } {
  const [state, setState] = useState<{ runs: RunLine[] | null; trouble: string | null }>({
    runs: isReport ? [] : null,
    trouble: null,
  });
  useEffect(() => {
    if (isReport) return;
    let timer = 0;
    let stopped = false;
    const look = async () => {
      try {
        const runs = await runLines();
        if (!stopped) setState({ runs, trouble: null });
      } catch (error) {
        if (!stopped) setState((old) => ({ runs: old.runs, trouble: explained(error) }));
      }
      if (!stopped) timer = window.setTimeout(look, RUNS_MS);
    };
    void look();
    return () => {
      stopped = true;
      window.clearTimeout(timer);
    };
  }, []);
  return state;
}

/** The address after '#', so that views can be linked to and the back button works. */
export function useRoute(): string {
  const read = () => window.location.hash.replace(/^#\/?/, "");
  const [route, setRoute] = useState(read);
  useEffect(() => {
    const moved = () => setRoute(read());
    window.addEventListener("hashchange", moved);
    return () => window.removeEventListener("hashchange", moved);
  }, []);
  return route;
}

export function useWidth<T extends HTMLElement>(): [RefObject<T | null>, number] {
  const box = useRef<T>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    if (!box.current) return;
    const watcher = new ResizeObserver(([entry]) => setWidth(Math.floor(entry!.contentRect.width)));
    watcher.observe(box.current);
    return () => watcher.disconnect();
  }, []);
  return [box, width];
}
