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

export interface Run {
  url: string;
  run: string;
  mode: "exclusive" | "single_writer";
  wisp_version: string;
  head_seq: number;
  head_step: number | null;
  head_age_ms: number;
  expired: boolean;
  floor_seq: number;
  full_bytes: number;
  full_bytes_from: "anchor" | "estimate" | "unknown";
  total_elements: number;
  anchors: Anchor[];
  merged_deltas: MergedDelta[];
  branches: string[];
  stored_objects: number;
  stored_bytes: number;
  join_objects: number;
  join_bytes: number;
  replicas: Replica[];
  exponents: boolean;
  made_ms: number;
}

export interface Head {
  head_seq: number;
  head_age_ms: number;
  expired: boolean;
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

export const api = {
  run: async (): Promise<Run> => report?.run ?? (await get<Run>("api/run")),
  head: (): Promise<Head> => get<Head>("api/head"),
  commits: async (after: number): Promise<Commit[]> =>
    report?.commits ?? (await get<{ commits: Commit[] }>(`api/commits?after=${after}`)).commits,
  layers: async (cursor: number): Promise<Layers> =>
    report?.layers ?? (await get<Layers>(`api/layers?cursor=${cursor}`)),
  step: async (seq: number): Promise<StepDetail> =>
    report
      ? kept(report.steps, seq, "This report does not hold the details of this step.")
      : await get<StepDetail>(`api/commits/${seq}`),
  exponents: async (seq: number): Promise<Exponents> =>
    report
      ? kept(report.exponents, seq, "This report was made without --work, so exponents were not counted.")
      : await get<Exponents>(`api/commits/${seq}/exponents`),
};
