/**
 * How the runtime of a node process is started; `./dsec` starts `up` in the same way. Left alone, its space for new objects grows
 * to 48 MB when many clients attach at once, and never shrinks. Half of that costs no throughput that could be measured.
 */
export const NODE_FLAGS: readonly string[] = ["--max-semi-space-size=8"];
