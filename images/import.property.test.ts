import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { gzipSync, zstdCompressSync } from "node:zlib";
import fc from "fast-check";
import { SandboxError } from "#core/errors.ts";
import { deb } from "./test-support/deb.ts";
import { archive, importBytes, pax, temporaryStore } from "./test-support/fixtures.ts";

const PLAIN = archive(
  { path: "d", flag: "5" },
  pax({ path: "d/long name", mtime: "5.5", "SCHILY.xattr.user.x": "y" }),
  { path: "d/a", body: Buffer.from(Array.from({ length: 3000 }, (_, index) => (index * 31) & 0xff)) },
  { path: "l", flag: "1", target: "d/long name" },
  { path: "././@LongLink", flag: "L", body: "p/".repeat(80) },
  { path: "cut", body: "z" },
  { path: "s", flag: "2", target: "d" },
);
const FORMS = { plain: PLAIN, gzip: gzipSync(PLAIN), zstd: zstdCompressSync(PLAIN), deb: deb({ data: PLAIN }) };
const RUNS = 100;

/** Imports damaged bytes: a whole layer or a typed refusal, and nothing half done in either case. */
async function survives(bytes: Buffer, form: keyof typeof FORMS = "plain"): Promise<"imported" | "refused"> {
  using made = await temporaryStore();
  try {
    const { layers } = await importBytes(made.store, bytes, form === "deb" ? { format: "deb", kind: "toolkit" } : {});
    for (const digest of layers) await made.store.verify(digest);
    assert.equal(readdirSync(join(made.store.dir, "layers")).length, 1);
    return "imported";
  } catch (error) {
    assert.ok(error instanceof SandboxError, String(error));
    assert.ok(error.kind === "InvalidArgument" || error.kind === "TooLarge", `${error.kind}: ${error.message}`);
    assert.deepEqual(readdirSync(join(made.store.dir, "layers")), []);
    return "refused";
  } finally {
    assert.deepEqual(readdirSync(join(made.store.dir, "tmp")), []);
  }
}

for (const form of ["plain", "gzip", "zstd", "deb"] as const) {
  const bytes = FORMS[form];
  describe(`a ${form} archive`, () => {
    test("cut off anywhere is refused, or was whole up to its end mark", async () => {
      const property = fc.asyncProperty(fc.integer({ min: 0, max: bytes.length - 1 }), async (length) => {
        const outcome = await survives(bytes.subarray(0, length), form);
        if (form === "plain" && length < PLAIN.length - 1024 + 512) assert.equal(outcome, "refused");
        if (form === "gzip" || form === "deb") assert.equal(outcome, "refused");
      });
      await fc.assert(property, { numRuns: RUNS });
    });

    test("with bits flipped anywhere never does more than be refused", async () => {
      const flips = fc.array(fc.integer({ min: 0, max: bytes.length * 8 - 1 }), { minLength: 1, maxLength: 4 });
      const property = fc.asyncProperty(flips, async (bits) => {
        const damaged = Buffer.from(bytes);
        for (const bit of bits) damaged[bit >> 3] = (damaged[bit >> 3] ?? 0) ^ (1 << (bit & 7));
        await survives(damaged, form);
      });
      await fc.assert(property, { numRuns: RUNS });
    });
  });
}

test("arbitrary bytes are never taken for an archive", async () => {
  const property = fc.asyncProperty(fc.uint8Array({ maxLength: 4000 }), async (bytes) => {
    const isEmptyArchive = bytes.length >= 512 && bytes.subarray(0, 512).every((byte) => byte === 0);
    assert.equal(await survives(Buffer.from(bytes)), isEmptyArchive ? "imported" : "refused");
  });
  await fc.assert(property, { numRuns: RUNS });
});
