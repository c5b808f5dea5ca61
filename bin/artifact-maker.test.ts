import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { systemClock } from "#core/clock.ts";
import { openLayerStore } from "#images/store.ts";
import { openArtifactMaker } from "./artifact-maker.ts";

test("an import beyond those made at a time reads nothing of its upload until one ends", async () => {
  await using stack = new AsyncDisposableStack();
  const dir = mkdtempSync(join(tmpdir(), "dsec-maker-"));
  stack.defer(() => rmSync(dir, { recursive: true }));
  const store = stack.use(await openLayerStore(dir));
  const maker = stack.use(
    await openArtifactMaker(
      {
        store,
        objects: undefined,
        mounts: { unmountUnused: () => undefined, report: async () => [] },
        collapseBytes: 0,
        helperUid: 0x0700_0000,
        system: { guestDir: dir, agent: "/dev/null", shell: "/dev/null" },
        fetchNetworks: "any",
        registries: { authFile: undefined, registriesFile: undefined },
      },
      systemClock,
    ),
  );
  const read = new Set<number>();
  const goOn = Promise.withResolvers<void>();
  const imports = Array.from({ length: 6 }, (_, at) => {
    const controller = new AbortController();
    async function* source() {
      read.add(at);
      await goOn.promise;
      yield new Uint8Array(1024);
    }
    const made = maker.importArchive({
      kind: "base",
      format: "tar",
      source: source(),
      at: undefined,
      signal: controller.signal,
    });
    // Looked at below; one rejects before the others end.
    made.catch(() => undefined);
    return { made, controller };
  });
  while (read.size < 4) await new Promise(setImmediate);
  assert.equal(readdirSync(join(dir, "tmp")).length, 4);
  imports[4]?.controller.abort(new Error("the sender left"));
  await assert.rejects(imports[4]?.made ?? Promise.resolve(), /the sender left/);
  assert.deepEqual([...read].sort(), [0, 1, 2, 3]);
  goOn.resolve();
  const ends = await Promise.allSettled(imports.map(({ made }) => made));
  assert.deepEqual(
    ends.map(({ status }) => status),
    ["fulfilled", "fulfilled", "fulfilled", "fulfilled", "rejected", "fulfilled"],
  );
  assert.deepEqual([...read].sort(), [0, 1, 2, 3, 5]);
});
