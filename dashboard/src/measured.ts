// Figures of bench/results/bucket.jsonl, "publish": weights in the shape of Qwen3-0.6B, moved as
// AdamW moves them, on two cores.

export const MODEL_BYTES = 1_192_099_840;
export const DELTA_BYTES = 3_112_074;
export const CHANGED_SHARE = 0.00553598597916094;
export const DIFF_SECONDS = 0.406795844;
export const APPLY_SECONDS = 0.974819577;
