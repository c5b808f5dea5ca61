import { ReadStream, WriteStream } from "node:tty";
import type { Io, LocalTerminal } from "#cli/io.ts";

/** What programs assume of a terminal without a size. */
const DEFAULT_SIZE = { rows: 24, cols: 80 };

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
    get terminal() {
      const { stdin, stdout } = process;
      return stdin instanceof ReadStream && stdout instanceof WriteStream ? terminalOf(stdin, stdout) : undefined;
    },
    onSignal(name, action) {
      process.on(name, action);
      return { [Symbol.dispose]: () => process.off(name, action) };
    },
  };
}

function terminalOf(stdin: ReadStream, stdout: WriteStream): LocalTerminal {
  return {
    kind: process.env.TERM,
    // A serial line, and a terminal that nobody gave a size, say 0.
    size: () => ({ rows: stdout.rows || DEFAULT_SIZE.rows, cols: stdout.columns || DEFAULT_SIZE.cols }),
    onResize(action) {
      stdout.on("resize", action);
      return { [Symbol.dispose]: () => stdout.off("resize", action) };
    },
    raw() {
      const restore = () => {
        process.off("exit", restore);
        stdin.setRawMode(false);
      };
      // A fault that ends the process must not leave a terminal that shows nothing.
      process.on("exit", restore);
      stdin.setRawMode(true);
      return { [Symbol.dispose]: restore };
    },
  };
}
