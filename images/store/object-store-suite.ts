import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readFileSync, truncateSync, writeFileSync } from "node:fs";
import { describe, test } from "node:test";
import { type ObjectEntry, type ObjectStore, readObject } from "./object-store.ts";
import { bytesOf, contentOf } from "./test-support/content.ts";

/** A store of a test's own, as several nodes see it. */
export interface StoreRig extends AsyncDisposable {
  /** Another node's view of the same store. Pages hold ten objects, and objects of more than `partBytes` go in parts. */
  open(): ObjectStore;
  /** Where the bytes of an object lie. */
  file(key: string): string;
  /** Everything that lies in the store beside whole objects: what interrupted puts left. */
  leftovers(): Promise<readonly string[]>;
  /** Puts `key` in a process of its own, which kills itself after half of the content. */
  putAndDie(key: string, sizeBytes: number): Promise<void>;
}

/** Objects of more than this go in parts, in the suite. */
export const SUITE_PART_BYTES = 2 ** 20;
/** Objects of a page, in the suite. */
export const SUITE_PAGE_KEYS = 10;

const live = () => AbortSignal.timeout(60_000);

/** Every driver of object stores passes this. `make` gives an empty store. */
export function objectStoreContract(name: string, make: () => Promise<StoreRig>): void {
  describe(`${name} keeps the ObjectStore contract`, { concurrency: 4 }, () => {
    test("objects of any size come back whole and by ranges", async () => {
      await using rig = await make();
      await using store = rig.open();
      for (const sizeBytes of [0, 1, 4096, 300_001, SUITE_PART_BYTES, 2 * SUITE_PART_BYTES + 17]) {
        const bytes = randomBytes(sizeBytes);
        await store.put(`a/${sizeBytes}`, contentOf(bytes, 70_000), live());
        assert.equal((await store.head(`a/${sizeBytes}`, live()))?.sizeBytes, sizeBytes);
        assert.ok(bytes.equals(await bytesOf(store.get(`a/${sizeBytes}`, undefined, live()))));
        const offset = sizeBytes >> 1;
        const range = { offset, lengthBytes: Math.min(sizeBytes - offset, 4000) };
        assert.deepEqual(
          await bytesOf(store.get(`a/${sizeBytes}`, range, live())),
          bytes.subarray(offset, offset + range.lengthBytes),
        );
      }
      assert.deepEqual(await rig.leftovers(), []);
    });

    test("the same key again replaces the object; removing it twice is no error", async () => {
      await using rig = await make();
      await using store = rig.open();
      for (const text of ["one", "one", "three"]) await store.put("a/b", contentOf(text), live());
      assert.equal((await readObject(store, "a/b", 100, live())).toString(), "three");
      await assert.rejects(readObject(store, "a/b", 4, live()), { kind: "Internal" });
      for (let n = 0; n < 2; n++) await store.remove("a/b", live());
      assert.equal(await store.head("a/b", live()), undefined);
      assert.deepEqual(await Array.fromAsync(store.list("", live())), []);
    });

    test("a key that nothing has is NotFound", async () => {
      await using rig = await make();
      await using store = rig.open();
      await store.probe(live());
      await assert.rejects(bytesOf(store.get("no/such", undefined, live())), { kind: "NotFound" });
      await assert.rejects(bytesOf(store.get("no/such", { offset: 5, lengthBytes: 5 }, live())), { kind: "NotFound" });
      assert.equal(await store.head("no/such", live()), undefined);
      await store.remove("no/such", live());
    });

    test("many nodes that put one key leave one whole object, and readers never see part of one", async () => {
      await using rig = await make();
      const bytes = randomBytes(400_000);
      const nodes = Array.from({ length: 4 }, () => rig.open());
      await nodes[0]?.put("shared/key", contentOf(bytes), live());
      await Promise.all(
        nodes.map(async (store) => {
          for (let round = 0; round < 5; round++) {
            await store.put("shared/key", contentOf(bytes), live());
            assert.ok(bytes.equals(await bytesOf(store.get("shared/key", undefined, live()))));
          }
        }),
      );
      assert.deepEqual(await rig.leftovers(), []);
      await Promise.all(nodes.map((store) => store[Symbol.asyncDispose]()));
    });

    test("content that is not what it says, or breaks off, is never seen", async () => {
      await using rig = await make();
      await using store = rig.open();
      for (const sizeBytes of [50_000, SUITE_PART_BYTES + 50_000]) {
        const right = contentOf(randomBytes(sizeBytes));
        const other = contentOf(randomBytes(sizeBytes));
        const wrong = [
          { ...right, sha256: other.sha256 },
          { ...right, sizeBytes: sizeBytes - 1 },
          { ...right, sizeBytes: sizeBytes + 1 },
        ];
        for (const content of wrong) await assert.rejects(store.put("bad", content, live()), { kind: "Internal" });
        const broken = { ...right, open: () => failing(right.open(), sizeBytes / 2) };
        await assert.rejects(store.put("bad", broken, live()), /no more of it/);
      }
      assert.equal(await store.head("bad", live()), undefined);
      assert.deepEqual(await rig.leftovers(), []);
    });

    test("a caller that gives up half-way leaves nothing", async () => {
      await using rig = await make();
      await using store = rig.open();
      for (const sizeBytes of [100_000, 2 * SUITE_PART_BYTES]) {
        const content = contentOf(randomBytes(sizeBytes), sizeBytes / 4);
        const caller = new AbortController();
        const reason = new Error("enough");
        const open = () => watching(content.open(), (passed) => passed === sizeBytes / 2 && caller.abort(reason));
        await assert.rejects(store.put("half", { ...content, open }, caller.signal), reason);
        await assert.rejects(bytesOf(store.get("half", undefined, caller.signal)), reason);
      }
      assert.equal(await store.head("half", live()), undefined);
      assert.deepEqual(await rig.leftovers(), []);
    });

    test("a node that is killed half-way through a put shows nothing, and another one puts it after", async () => {
      await using rig = await make();
      await using store = rig.open();
      for (const sizeBytes of [200_000, 3 * SUITE_PART_BYTES]) {
        await store.put("before", contentOf("whole"), live());
        await rig.putAndDie("killed", sizeBytes);
        assert.equal(await store.head("killed", live()), undefined);
        const keys = (await Array.fromAsync(store.list("", live()))).map((entry) => entry.key);
        assert.deepEqual(keys, ["before"]);
        await store.put("killed", contentOf("now"), live());
        await store.remove("killed", live());
      }
    });

    test("an object that was cut short is damaged, never a short answer", async () => {
      await using rig = await make();
      await using store = rig.open();
      await store.put("cut", contentOf(randomBytes(10_000)), live());
      truncateSync(rig.file("cut"), 6000);
      const ranges = [
        { offset: 0, lengthBytes: 10_000 },
        { offset: 5000, lengthBytes: 2000 },
        { offset: 8000, lengthBytes: 10 },
      ];
      for (const range of ranges) {
        await assert.rejects(bytesOf(store.get("cut", range, live())), { kind: "Internal", details: { key: "cut" } });
      }
      assert.equal((await bytesOf(store.get("cut", { offset: 5000, lengthBytes: 1000 }, live()))).length, 1000);
    });

    test("damaged bytes come as they are: whoever reads checks them", async () => {
      await using rig = await make();
      await using store = rig.open();
      await store.put("bit", contentOf("abc"), live());
      writeFileSync(rig.file("bit"), "abd");
      assert.equal((await bytesOf(store.get("bit", undefined, live()))).toString(), "abd");
      assert.equal(readFileSync(rig.file("bit"), "utf8"), "abd");
    });

    test("a listing has every object of a prefix once, over several pages", async () => {
      await using rig = await make();
      await using store = rig.open();
      const keys = Array.from({ length: 3 * SUITE_PAGE_KEYS + 1 }, (_, n) => `many/${n % 3}/object-${n}`);
      const before = Date.now() - 2000;
      await Promise.all(keys.map((key) => store.put(key, contentOf(key), live())));
      await store.put("man", contentOf("other"), live());
      assert.deepEqual(keysOf(await Array.fromAsync(store.list("many/", live()))), keys.toSorted());
      const some = await Array.fromAsync(store.list("many/1/object-1", live()));
      assert.deepEqual(keysOf(some), keys.filter((key) => key.startsWith("many/1/object-1")).toSorted());
      for (const { key, sizeBytes, modifiedAtMs } of some) {
        assert.equal(sizeBytes, key.length);
        assert.ok(modifiedAtMs >= before);
      }
      assert.deepEqual(await Array.fromAsync(store.list("none/", live())), []);
    });

    test("a reader that leaves early stops the reading", async () => {
      await using rig = await make();
      await using store = rig.open();
      await store.put("long", contentOf(randomBytes(2 * SUITE_PART_BYTES), 100_000), live());
      for await (const piece of store.get("long", undefined, live())) {
        assert.ok(piece.length <= SUITE_PART_BYTES);
        break;
      }
      assert.equal((await readObject(store, "long", 3 * SUITE_PART_BYTES, live())).length, 2 * SUITE_PART_BYTES);
    });

    test("keys that would leave the store are refused", async () => {
      await using rig = await make();
      await using store = rig.open();
      for (const key of ["../up", "/abs", "a//b", "a/../b", "", ".hidden", "a/.incoming/b", "a\0b", "x".repeat(601)]) {
        await assert.rejects(store.put(key, contentOf("x"), live()), /not a key/);
        await assert.rejects(bytesOf(store.get(key, undefined, live())), /not a key/);
      }
    });
  });
}

function keysOf(entries: readonly ObjectEntry[]): string[] {
  return entries.map((entry) => entry.key).sort();
}

async function* failing(source: AsyncIterable<Uint8Array>, afterBytes: number): AsyncIterable<Uint8Array> {
  yield* watching(source, (passed) => {
    if (passed >= afterBytes) throw new Error("no more of it");
  });
}

async function* watching(
  source: AsyncIterable<Uint8Array>,
  seen: (passedBytes: number) => unknown,
): AsyncIterable<Uint8Array> {
  let passedBytes = 0;
  for await (const piece of source) {
    passedBytes += piece.length;
    seen(passedBytes);
    yield piece;
  }
}
