import { type ChildProcessByStdio, spawn } from "node:child_process";
import { once } from "node:events";
import { Duplex, Readable, type Writable } from "node:stream";
import { SandboxError } from "#core/errors.ts";
import { findProgram } from "./programs.ts";

/** Formats that Node cannot read and a program of Debian can: it has the name of the format. */
export type ProgramFormat = "xz" | "bzip2";

/** A stream may ask for gigabytes of dictionary; what xz itself makes needs 65 MiB at most. */
const WORDS: Readonly<Record<ProgramFormat, readonly string[]>> = {
  xz: ["--decompress", "--stdout", "--memlimit-decompress=256MiB", "--no-warn"],
  bzip2: ["--decompress", "--stdout"],
};
const PACKAGES: Readonly<Record<ProgramFormat, string>> = { xz: "xz-utils", bzip2: "bzip2" };
const SAID_BYTES = 500;

/**
 * Compressed bytes in, plain bytes out, with the back-pressure of the reader. Fails when the input is damaged or cut off;
 * destroying it ends the program. Throws `FailedPrecondition` on a host without the program.
 */
export function openDecompressor(format: ProgramFormat): Duplex {
  const program = findProgram(format);
  if (program === undefined) {
    throw new SandboxError("FailedPrecondition", `this node has no ${format} to read the archive with`, {
      hint: `apt-get install ${PACKAGES[format]} on the node, or send it plain, or compressed with gzip or zstd`,
    });
  }
  const child = spawn(program, WORDS[format], { stdio: ["pipe", "pipe", "pipe"] });
  return Duplex.from({ writable: child.stdin, readable: Readable.from(outputOf(child), { objectMode: false }) });
}

/** A program that fails has often written most of its output: its status is looked at before the end is believed. */
async function* outputOf(child: ChildProcessByStdio<Writable, Readable, Readable>): AsyncIterable<Uint8Array> {
  let said = "";
  child.stderr.on("data", (chunk: Buffer) => {
    said = `${said}${chunk}`.slice(0, SAID_BYTES);
  });
  const closed = once(child, "close");
  try {
    yield* child.stdout;
    const [code] = await closed;
    if (code !== 0) throw new Error(`${child.spawnfile} ended with ${code}: ${said.trim()}`);
  } finally {
    child.kill("SIGKILL");
    await closed;
  }
}
