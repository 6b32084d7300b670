// Which run the views below stand in: what their links begin with.

import { createContext } from "preact";

export const Home = createContext("/run/0");

export interface Place {
  view: "runs" | "run" | "how";
  run: number;
  /** Of one step in detail: its commit. */
  seq: number | null;
}

/** "", "how", "run/2", "run/2/step/17"; "step/17" is one of the first run. */
export function placeOf(route: string): Place {
  if (route === "how") return { view: "how", run: 0, seq: null };
  const found = /^(?:run\/(\d{1,6})\/?)?(?:step\/(\d{1,15}))?$/.exec(route);
  const run = Number(found?.[1] ?? 0);
  const seq = found?.[2] === undefined ? null : Number(found[2]);
  return { view: found?.[1] === undefined && seq === null ? "runs" : "run", run, seq };
}
