import { spawn } from "node:child_process";
import { join } from "node:path";
import type { TestNode } from "./node.ts";

const ENTRY = join(import.meta.dirname, "../../bin/dsec.ts");
const LIMIT_MS = 60_000;

/** How a command line ended. */
export interface CliResult {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
  readonly wallMs: number;
}

/** Runs the `dsec` command against a node, with `stdin` as its input. */
export async function dsec(node: TestNode, words: readonly string[], stdin = ""): Promise<CliResult> {
  const start = performance.now();
  const child = spawn(process.execPath, [ENTRY, ...words], { env: { ...process.env, ...node.env }, timeout: LIMIT_MS });
  const stdout: Buffer[] = [];
  const stderr: Buffer[] = [];
  child.stdout.on("data", (chunk: Buffer) => stdout.push(chunk));
  child.stderr.on("data", (chunk: Buffer) => stderr.push(chunk));
  // A command that does not read its input closes it.
  child.stdin.on("error", () => undefined);
  child.stdin.end(stdin);
  const status = await new Promise<number | null>((resolve, reject) =>
    child.once("close", resolve).once("error", reject),
  );
  const text = (chunks: readonly Buffer[]) => Buffer.concat(chunks).toString("utf8");
  return { status, stdout: text(stdout), stderr: text(stderr), wallMs: performance.now() - start };
}
