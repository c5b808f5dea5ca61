import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import type { CreateSandbox, Sandbox } from "#sdk";
import { type NodeOptions, startNode, type TestNode } from "../support/node.ts";

/** Of Debian's package memtest86+: a CD that starts without Linux. */
export const MEMTEST = "/usr/lib/memtest86+/memtest86+x64.iso";
/** The name it gets in the catalogue. */
export const MEMTEST_IMAGE = "memtest";
/** An emulated computer on a busy machine. */
const SHOW_MS = 180_000;

/** A node whose processors are emulated, with the image of memtest86+. */
export async function startNodeWithMemtest(options: NodeOptions = {}): Promise<TestNode> {
  const node = await startNode({ ...options, words: ["--accelerator=tcg", ...(options.words ?? [])] });
  try {
    await node.client.artifacts.importVmImage(createReadStream(MEMTEST), { name: MEMTEST_IMAGE, devices: "emulated" });
  } catch (error) {
    await node[Symbol.asyncDispose]();
    throw error;
  }
  return node;
}

/** A computer that starts memtest86+. */
export function createComputer(node: TestNode, request: Partial<CreateSandbox> = {}): Promise<Sandbox> {
  return node.client.sandboxes.create({ base: MEMTEST_IMAGE, resources: { memoryMiB: 64 }, ...request });
}

/** What a picture shows, as one word, and its size. */
export function described(png: Uint8Array): {
  readonly digest: string;
  readonly width: number;
  readonly height: number;
} {
  const bytes = Buffer.from(png);
  assert.equal(bytes.toString("latin1", 1, 4), "PNG");
  const digest = createHash("sha256").update(bytes).digest("hex");
  return { digest, width: bytes.readUInt32BE(16), height: bytes.readUInt32BE(20) };
}

/** Resolves when the screen shows another picture than that. */
export async function pictureOtherThan(sandbox: Sandbox, digest: string): Promise<string> {
  return shows(sandbox, (now) => now.digest !== digest);
}

/** Resolves when the screen is memtest86+'s: text of 80 columns and 25 rows, where the firmware has 640 by 480 points. */
export async function memtestShows(sandbox: Sandbox): Promise<string> {
  return shows(sandbox, ({ width, height }) => width === 720 && height === 400);
}

async function shows(sandbox: Sandbox, isIt: (now: ReturnType<typeof described>) => boolean): Promise<string> {
  for (const end = Date.now() + SHOW_MS; ; ) {
    const now = described((await sandbox.computer.screenshot()).png);
    if (isIt(now)) return now.digest;
    assert.ok(Date.now() < end, "the screen does not show it");
  }
}
