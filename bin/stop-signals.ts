/** Stops a node and removes its sandboxes; Ctrl-C in a terminal does the same. */
export const REMOVE_SIGNAL = "SIGTERM";
/** Stops a node and leaves its sandboxes to the next one. */
export const KEEP_SIGNAL = "SIGUSR2";
