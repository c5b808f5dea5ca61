import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { WatchDecoder, type WatchEvent } from "#core/watch.ts";
import { EXEC_DEFAULTS, forEachBuild, nextNumber, Recorder, TestAgent } from "./testing.ts";

/** More than the kernel keeps for a reader that does not read. */
const FILES = 22_000;
const LONG = "n".repeat(200);

forEachBuild((build) => {
  describe(`watches of the ${build} agent`, { timeout: 120_000 }, () => {
    test("more than is kept for a slow reader shows as overflow, and the end of what is watched is not missed", async () => {
      await using agent = await TestAgent.start({ build });
      const link = await agent.connect();
      const folder = await mkdtemp(join(tmpdir(), "dsec-watch-"));
      const number = nextNumber();
      const decoder = new WatchDecoder();
      const events: WatchEvent[] = [];
      const ready = Promise.withResolvers<void>();
      let slow = true;
      let seen = 0;
      const recorder = new Recorder((stream, offset) => {
        seen = Math.max(seen, stream === "stdout" ? offset : 0);
        if (!slow || stream !== "stdout") link.acknowledge(number, stream, offset);
      });
      recorder.onOutput = (stream) => {
        if (stream !== "stdout") return;
        events.push(...decoder.push(recorder.chunks.stdout.at(-1) ?? Buffer.alloc(0)));
        if (events[0]?.type === "ready") ready.resolve();
      };
      const action = { type: "watch", path: Buffer.from(folder), recursive: true } as const;
      await link.start(number, { ...EXEC_DEFAULTS, action }, recorder);
      await ready.promise;
      for (let index = 0; index < FILES; index++) await writeFile(join(folder, `${LONG}${index}`), "");
      await rm(folder, { recursive: true });
      slow = false;
      link.acknowledge(number, "stdout", seen);
      const { cause, code } = await recorder.status.promise;
      assert.deepEqual([cause, code], ["exited", 0]);
      assert.ok(events.some(({ type }) => type === "overflow"));
      assert.deepEqual(events.at(-1), { type: "removed", path: new Uint8Array(), directory: true });
      link.forget(number);
      link.close();
    });
  });
});
