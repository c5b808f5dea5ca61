import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { Sandbox } from "#sdk";
import type { TestNode } from "../support/node.ts";
import { output } from "../support/sandbox.ts";
import { waitUntil } from "../support/wait.ts";
import type { ContractBackend } from "./backend.ts";

const ENTRY = join(import.meta.dirname, "../../bin/dsec.ts");
const PIECE = Buffer.alloc(200_000, 1);
/** Pieces that were sent when the kill comes: within the windows on the way, and far beyond. */
const MOMENTS = [0, 1, 7, 40];
/** Processes of the sandbox beside the shell that counts them. */
const COUNT = "ls /proc | grep -c '^[0-9]'";
const LIMIT_MS = 30_000;

/** Whoever is killed in the middle of a transfer leaves the old file, nothing half done and nobody at work. */
export function fileKillsContract(backend: ContractBackend): void {
  describe(`transfers in a ${backend.name} that a kill cuts off`, { timeout: 900_000 }, () => {
    let node: TestNode;
    let id = "";
    let idle = "";
    const sandbox = (): Sandbox => node.client.sandboxes.use(id);
    before(async () => {
      node = await backend.startNode();
      ({ id } = await backend.create(node));
      await sandbox().files.write("/tmp/k/f", "old", { parents: true });
      idle = await output(sandbox(), COUNT);
    });
    after(() => node[Symbol.asyncDispose]());

    const nothingIsLeft = async () => {
      await waitUntil("nobody is at work", LIMIT_MS, async () => (await output(sandbox(), COUNT)) === idle);
      assert.equal(await output(sandbox(), "cd /tmp/k && ls -A && cat f"), "f\nold");
    };

    for (const moment of MOMENTS) {
      test(`the node, after ${moment} pieces of an upload: the old file stays, the sandbox is usable again`, async () => {
        const sent = Promise.withResolvers<void>();
        const forever = Promise.withResolvers<void>();
        const upload = sandbox().files.write("/tmp/k/f", stalling(moment, sent.resolve, forever.promise));
        const failed = assert.rejects(upload);
        await sent.promise;
        await node.kill();
        await failed;
        forever.resolve();
        await node.start();
        await nothingIsLeft();
      });

      test(`the client, after ${moment} pieces of an upload: the old file stays`, async () => {
        const child = spawn(process.execPath, [ENTRY, "cp", "-", `${id}:/tmp/k/f`], {
          env: { ...process.env, ...node.env },
          stdio: ["pipe", "ignore", "inherit"],
        });
        child.stdin.on("error", () => undefined);
        for (let piece = 0; piece < moment; piece++) {
          if (!child.stdin.write(PIECE)) await once(child.stdin, "drain");
        }
        await waitUntil(
          "the upload has begun",
          LIMIT_MS,
          async () => moment === 0 || (await output(sandbox(), COUNT)) !== idle,
        );
        const ended = once(child, "close");
        child.kill("SIGKILL");
        await ended;
        await nothingIsLeft();
      });
    }

    test("the node, in the middle of a download: the reader is told, and the file can be read again", async () => {
      await sandbox().files.write("/tmp/big", pieces(100));
      const reading = sandbox().files.stream("/tmp/big");
      await reading.next();
      await node.kill();
      await assert.rejects(
        (async () => {
          for await (const _ of reading) {
            // What was on the way still comes.
          }
        })(),
        { kind: "Unavailable" },
      );
      await node.start();
      assert.equal((await sandbox().files.read("/tmp/big")).length, 100 * PIECE.length);
      await nothingIsLeft();
    });
  });
}

async function* pieces(count: number): AsyncGenerator<Uint8Array> {
  for (let piece = 0; piece < count; piece++) yield PIECE;
}

/** Sends so many pieces, says so, and waits. */
async function* stalling(count: number, sent: () => void, end: Promise<void>): AsyncGenerator<Uint8Array> {
  yield* pieces(count);
  sent();
  await end;
}
