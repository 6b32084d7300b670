// What the server says (doc/dashboard.md), and where it is asked: over HTTP, or in a report the
// data that lies in the page.

export interface Commit {
  seq: number;
  epoch: number;
  step: number;
  kind: string;
  makes_state: boolean;
  time_ms: number;
  delta_bytes: number;
  anchor_bytes: number;
  changed_elements: number;
  total_elements: number;
  state: string;
  writer: string;
  signer: string | null;
  signature: "unsigned" | "unchecked" | "trusted" | "certified";
  rewind_from: number | null;
  hash: string;
  previous: string;
  follows: boolean | null;
}

export interface Anchor {
  seq: number;
  step: number;
  bytes: number;
  base_name: string;
}

export interface MergedDelta {
  from_seq: number;
  from_step: number;
  to_seq: number;
  to_step: number;
  bytes: number;
}

export interface Replica {
  id: string;
  seq: number;
  step: number;
  lag_steps: number;
  seen_ms: number;
  every_ms: number | null;
  pause_ms: number | null;
  status: string;
  health: "ok" | "behind" | "dead" | "stopped";
}

export interface Concern {
  severity: "ok" | "warning" | "critical";
  cause: string;
  text: string;
}

/** How the run is, as `wisp status` says it too. */
export interface Verdict {
  severity: "ok" | "warning" | "critical";
  text: string;
  concerns: Concern[];
}

/** What the server could not read, while it goes on showing what it read before. */
export interface Trouble {
  error: string;
  message: string;
  since_ms: number;
  read_ms: number;
}

/** One run among several. */
export interface RunLine {
  id: number;
  url: string;
  run: string;
  verdict: Verdict | null;
  trouble: Trouble | null;
  head_step: number | null;
  head_age_ms: number | null;
  interval_ms: number | null;
  replicas: number | null;
  lag_steps: number | null;
}

export interface Beats {
  kept_ms: number;
  replicas: { id: string; beats: [heard_ms: number, lag_steps: number, pause_ms: number | null][] }[];
}

export interface Run {
  url: string;
  run: string;
  mode: "exclusive" | "single_writer";
  wisp_version: string;
  head_seq: number;
  head_step: number | null;
  head_age_ms: number | null;
  expired: boolean;
  interval_ms: number | null;
  floor_seq: number;
  full_bytes: number | null;
  full_bytes_from: "anchor" | "estimate" | "unknown";
  total_elements: number | null;
  anchors: Anchor[];
  merged_deltas: MergedDelta[];
  branches: string[];
  stored_objects: number | null;
  stored_bytes: number | null;
  join_objects: number | null;
  join_bytes: number | null;
  replicas: Replica[];
  verdict: Verdict;
  trouble: Trouble | null;
  read_ms: number;
  exponents: boolean;
  made_ms: number;
}

export interface Head {
  head_seq: number;
  head_age_ms: number | null;
  expired: boolean;
  verdict: Verdict;
  trouble: Trouble | null;
  read_ms: number;
  replicas: Replica[];
}

export interface LayerStep {
  seq: number;
  step: number;
  error?: string;
  cells: [layer: number, changed: number, bytes: number][];
}

export interface Layers {
  layers: { name: string; elements: number }[];
  steps: LayerStep[];
  pending: number;
  cursor: number;
}

export interface Tensor {
  name: string;
  dtype: string;
  shape: number[];
  elements: number;
  changed: number;
  bytes: number;
  blocks: Record<string, number>;
}

export interface StepDetail {
  seq: number;
  step: number;
  codec: string;
  file_bytes: number;
  payload_bytes: number;
  total_elements: number;
  changed_elements: number;
  base: string | null;
  result: string | null;
  tensors: Tensor[];
  forecast: { binade: number; share: number }[];
}

export interface Binade {
  binade: number;
  elements: number;
  changed: number;
}

export interface Exponents {
  seq: number;
  binades: Binade[];
}

interface Report {
  run: Run;
  commits: Commit[];
  layers: Layers;
  beats: Beats;
  steps: Record<string, StepDetail>;
  exponents: Record<string, Exponents>;
}

/** An answer of the server that is not data: its own words, which name the cure. */
export class Refusal extends Error {
  constructor(
    readonly kind: string,
    message: string,
  ) {
    super(message);
  }
}

const embedded = document.getElementById("wisp-report")?.textContent;
const report: Report | null = embedded ? (JSON.parse(embedded) as Report) : null;

export const isReport = report !== null;

async function get<T>(path: string): Promise<T> {
  let answer: Response;
  try {
    answer = await fetch(path, { cache: "no-store" });
  } catch {
    throw new Refusal("unreachable", "wisp dashboard does not answer; is it still running?");
  }
  const body = (await answer.json().catch(() => null)) as
    | (T & { error?: string; message?: string })
    | null;
  if (!answer.ok || body === null) {
    throw new Refusal(body?.error ?? "broken", body?.message ?? `the server answered ${answer.status}`);
  }
  return body;
}

function kept<T>(table: Record<string, T>, seq: number, what: string): T {
  const found = table[String(seq)];
  if (found === undefined) throw new Refusal("not_in_report", what);
  return found;
}

export async function runLines(): Promise<RunLine[]> {
  return report ? [] : (await get<{ runs: RunLine[] }>("api/runs")).runs;
}

/** The questions about one run. */
export function apiOf(id: number) {
  const at = `api/runs/${id}`;
  return {
    run: async (): Promise<Run> => report?.run ?? (await get<Run>(`${at}/run`)),
    head: (): Promise<Head> => get<Head>(`${at}/head`),
    commits: async (after: number): Promise<Commit[]> =>
      report?.commits ?? (await get<{ commits: Commit[] }>(`${at}/commits?after=${after}`)).commits,
    beats: async (after: number): Promise<Beats> =>
      report?.beats ?? (await get<Beats>(`${at}/beats?after=${after}`)),
    layers: async (cursor: number): Promise<Layers> =>
      report?.layers ?? (await get<Layers>(`${at}/layers?cursor=${cursor}`)),
    step: async (seq: number): Promise<StepDetail> =>
      report
        ? kept(report.steps, seq, "This report does not hold the details of this step.")
        : await get<StepDetail>(`${at}/commits/${seq}`),
    exponents: async (seq: number): Promise<Exponents> =>
      report
        ? kept(report.exponents, seq, "This report was made without --work, so exponents were not counted.")
        : await get<Exponents>(`${at}/commits/${seq}/exponents`),
  };
}

export type Api = ReturnType<typeof apiOf>;
