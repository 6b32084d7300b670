// Figures of bench/results; a test holds them against the files.

// bucket_epyc.jsonl, "publish", swift: weights in the shape of Qwen3-0.6B, moved as AdamW moves them, on two cores.
export const MODEL_BYTES = 1_192_099_840;
export const DELTA_BYTES = 4_299_421;
export const CHANGED_SHARE = 0.005570229755252714;
/** From the trainer's call to the commit, without the trainer's own copy of the result. */
export const COMMIT_SECONDS = 0.145454763;
/** From the commit to the replica's memory: fetched, verified, decoded, proven, applied. */
export const APPLY_SECONDS = 0.073342924;

// engines.jsonl, the newest "engine_pause" with swift: a real vLLM, on two cores.
export const ENGINE_BYTES = 269_030_016;
export const ENGINE_CHANGED_SHARE = 0.00449;
export const PAUSE_SECONDS = 0.010136;
export const LOADER_SECONDS = 0.3047;
