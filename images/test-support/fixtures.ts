import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { archive, type Member, member, pax } from "#core/tar/test-support/fixtures.ts";
import { type ImportedArtifact, type ImportOptions, importArtifact } from "../import.ts";
import { type LayerStore, openLayerStore } from "../store.ts";

/** A directory of a test's own, removed with all that is in it. */
export function temporaryDirectory(): { readonly path: string } & Disposable {
  const path = mkdtempSync(join(tmpdir(), "dsec-images-"));
  return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }) };
}

/** A store in a directory of its own. */
export async function temporaryStore(): Promise<{ readonly store: LayerStore; readonly path: string } & Disposable> {
  const directory = temporaryDirectory();
  const store = await openLayerStore(join(directory.path, "store"));
  return {
    store,
    path: directory.path,
    [Symbol.dispose]() {
      store[Symbol.dispose]();
      directory[Symbol.dispose]();
    },
  };
}

/** Bytes as a stream of small pieces, so that every border inside an archive falls somewhere. */
export async function* pieces(bytes: Buffer, size = 1000): AsyncIterable<Uint8Array> {
  for (let start = 0; start < bytes.length; start += size) yield bytes.subarray(start, start + size);
}

/** Imports bytes as a tar archive. */
export function importBytes(
  store: LayerStore,
  bytes: Buffer,
  options: Partial<ImportOptions> = {},
): Promise<ImportedArtifact> {
  return importArtifact({ store, source: pieces(bytes), format: "tar", ...options });
}

/** Runs a tool that checks what we made; its output is part of the failure. */
export function run(command: string, ...args: readonly string[]): string {
  return execFileSync(command, args, { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"], maxBuffer: 2 ** 28 });
}

export { archive, type Member, member, pax };
