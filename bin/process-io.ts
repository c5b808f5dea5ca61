import type { Io } from "#cli/io.ts";

/** This process's own streams and signals. */
export function processIo(): Io {
  return {
    get stdin() {
      return process.stdin;
    },
    get stdout() {
      return process.stdout;
    },
    get stderr() {
      return process.stderr;
    },
    onSignal(name, action) {
      process.on(name, action);
      return { [Symbol.dispose]: () => process.off(name, action) };
    },
  };
}
