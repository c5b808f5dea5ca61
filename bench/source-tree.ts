import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { archive } from "#core/tar/test-support/fixtures.ts";

/** Names and bodies of files. */
export type NamedFiles = Iterable<readonly [path: string, body: Buffer]>;

/** What a tree is to be like. */
export interface TreeShape {
  readonly files: number;
  readonly bytes: number;
  /** Directory that everything is in. */
  readonly at: string;
}

const FILES_A_DIRECTORY = 100;
const MEMBER_BYTES = 16;

/** Files like those of a repository: pieces of our own sources, no two alike, a hundred in a directory. */
export function* sourceTree({ files, bytes, at }: TreeShape): NamedFiles {
  const text = ownSources();
  const size = Math.floor(bytes / files) - MEMBER_BYTES;
  for (let index = 0; index < files; index++) {
    const start = (index * 7_919) % (text.length - size);
    const head = Buffer.from(`${at} ${index}\n`.padEnd(MEMBER_BYTES));
    const path = `${at}/d${Math.floor(index / FILES_A_DIRECTORY)}/f${index}`;
    yield [path, Buffer.concat([head, text.subarray(start, start + size)])];
  }
}

function ownSources(): Buffer {
  const root = join(import.meta.dirname, "..");
  const folders = ["backends", "control", "core", "edge", "host", "images"];
  const names = folders.flatMap((folder) =>
    readdirSync(join(root, folder), { recursive: true, encoding: "utf8" }).map((name) => join(root, folder, name)),
  );
  return Buffer.concat(
    names
      .filter((name) => name.endsWith(".ts"))
      .sort()
      .map((name) => readFileSync(name)),
  );
}

/** A tar archive of the files. */
export function tarOf(files: NamedFiles): Buffer {
  return archive(...[...files].map(([path, body]) => ({ path, body })));
}

/** The archive as people send it. */
export function gzipped(tar: Buffer): Buffer {
  return gzipSync(tar);
}
