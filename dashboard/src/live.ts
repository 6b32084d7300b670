// The state of the page: fetched once, then kept fresh by asking a small question every two seconds.

import type { RefObject } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import { api, type Commit, isReport, type Layers, Refusal, type Run } from "./api";

export interface Live {
  run: Run | null;
  commits: Commit[];
  layers: Layers | null;
  /** What is wrong right now; the last good data stay on the page. */
  trouble: string | null;
}

const POLL_MS = 2000;
const EMPTY: Live = { run: null, commits: [], layers: null, trouble: null };

export const words = (error: unknown): string => (error instanceof Error ? error.message : String(error));

function joined(old: Layers | null, more: Layers): Layers {
  if (!old) return more;
  const known = new Map(old.steps.map((step) => [step.seq, step]));
  for (const step of more.steps) known.set(step.seq, step);
  const steps = [...known.values()].sort((a, b) => a.seq - b.seq);
  return { ...more, steps };
}

export function useLive(): Live {
  const [live, setLive] = useState<Live>(EMPTY);
  const current = useRef<Live>(EMPTY);

  useEffect(() => {
    let stopped = false;
    let timer = 0;
    const put = (change: Partial<Live>) => {
      current.current = { ...current.current, ...change };
      if (!stopped) setLive(current.current);
    };

    const takeCommits = async () => {
      const known = current.current.commits;
      const after = known.at(-1)?.seq ?? 0;
      const fresh = await api.commits(after);
      put({ run: await api.run(), commits: [...known, ...fresh], trouble: null });
    };
    const takeLayers = async () => {
      do {
        const cursor = current.current.layers?.cursor ?? 0;
        put({ layers: joined(current.current.layers, await api.layers(cursor)) });
      } while (!stopped && (current.current.layers?.pending ?? 0) > 0);
    };
    const look = async () => {
      try {
        if (!current.current.run) {
          await takeCommits();
          await takeLayers();
        } else {
          const head = await api.head();
          const news = head.head_seq !== current.current.run.head_seq;
          if (news) {
            await takeCommits();
            await takeLayers();
          } else {
            put({ run: { ...current.current.run, ...head }, trouble: null });
          }
        }
      } catch (error) {
        put({ trouble: error instanceof Refusal ? error.message : `The page met an error: ${words(error)}` });
      }
      if (!stopped && !isReport) timer = window.setTimeout(look, POLL_MS);
    };
    void look();
    return () => {
      stopped = true;
      window.clearTimeout(timer);
    };
  }, []);
  return live;
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
