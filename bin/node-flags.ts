/**
 * How the runtime of a node process is started; `./dsec` starts `up` in the same way. Left alone, its space for new objects grows
 * to 48 MB when many clients attach at once, and never shrinks. Half of that costs no throughput that could be measured.
 */
export const NODE_FLAGS: readonly string[] = ["--max-semi-space-size=8"];

/**
 * For the filler on top of these. What it fetches passes through buffers that make the collector run again and again over a heap in which
 * nothing changes. With a heap that may be this large it does so half as often, which saves a fifth of the processor time of what is fetched;
 * the process grows by some 20 MB while it is.
 */
export const FILLER_FLAGS: readonly string[] = [...NODE_FLAGS, "--initial-heap-size=128"];
