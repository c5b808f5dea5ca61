import { spawn } from "node:child_process";
import { constants } from "node:os";
import { fileURLToPath } from "node:url";

/** Runs another entry point of this tree on the same Node, with this process's streams; resolves to its exit status. */
export function delegate(entry: string, argv: readonly string[]): Promise<number> {
  return new Promise((resolve, reject) => {
    const file = fileURLToPath(new URL(entry, import.meta.url));
    const child = spawn(process.execPath, [file, ...argv], { stdio: "inherit" });
    // The terminal signals the child as well; this process waits for what it makes of it.
    const ignore = () => undefined;
    process.on("SIGINT", ignore);
    child.on("error", reject);
    child.on("exit", (code, signal) => {
      process.off("SIGINT", ignore);
      resolve(code ?? 128 + (signal === null ? 0 : constants.signals[signal]));
    });
  });
}
