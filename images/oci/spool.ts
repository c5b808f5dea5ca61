import { createReadStream } from "node:fs";
import { type FileHandle, open, readFile } from "node:fs/promises";
import { posix } from "node:path";
import { SandboxError } from "#core/errors.ts";
import { badInput, type EntrySink, shown, type TreeEntry } from "#core/tar/entry.ts";
import { components } from "#core/tar/path.ts";
import { TarReader } from "#core/tar/reader.ts";
import { decompressed } from "../archive/decompress.ts";
import { sha256 } from "../digest.ts";
import { DiskRoom } from "../room.ts";
import type { ImageFiles } from "./files.ts";

/** Images have a handful of files a layer. */
const MAX_FILES = 10_000;
const MAX_LINK_HOPS = 8;

interface SpooledFile {
  readonly file: string;
  readonly sha256: string;
  readonly sizeBytes: number;
}

/** The files of an image archive, unpacked to a scratch directory under numbers: names of the archive never reach the disk. */
class Spool implements ImageFiles {
  readonly #files: ReadonlyMap<string, SpooledFile>;
  readonly #links: ReadonlyMap<string, string>;

  constructor(files: ReadonlyMap<string, SpooledFile>, links: ReadonlyMap<string, string>) {
    this.#files = files;
    this.#links = links;
  }

  has(path: string): boolean {
    return this.#find(path) !== undefined;
  }

  async read(path: string, maxBytes: number): Promise<string> {
    const found = this.#get(path);
    if (found.sizeBytes > maxBytes)
      throw badInput(`${shown(path)} of the image archive is larger than ${maxBytes} bytes`);
    return await readFile(found.file, "utf8");
  }

  stream(path: string): AsyncIterable<Uint8Array> {
    return createReadStream(this.#get(path).file, { highWaterMark: 256 * 1024 });
  }

  async sha256(path: string): Promise<string> {
    return this.#get(path).sha256;
  }

  #get(path: string): SpooledFile {
    const found = this.#find(path);
    if (found === undefined)
      throw badInput(`the image archive lacks ${shown(path)}`, "save the image again, with all its layers");
    return found;
  }

  #find(path: string): SpooledFile | undefined {
    let at = posix.normalize(path);
    for (let hop = 0; hop < MAX_LINK_HOPS; hop++) {
      const target = this.#links.get(at);
      if (target === undefined) return this.#files.get(at);
      at = posix.join(posix.dirname(at), target);
    }
    return undefined;
  }
}

/**
 * Unpacks an image archive into `dir`. Memory: the piece under way. Throws as `TarReader` does, `TooLarge` when its files
 * hold more than `maxBytes`, and `StorageFull` as `DiskRoom` does.
 */
export async function spool(dir: string, source: AsyncIterable<Uint8Array>, maxBytes: number): Promise<ImageFiles> {
  const sink = new SpoolSink(dir, maxBytes);
  try {
    const reader = new TarReader(sink);
    for await (const piece of decompressed(source)) {
      reader.push(piece);
      await sink.drain();
    }
    reader.finish();
    await sink.close();
    return new Spool(sink.files, sink.links);
  } finally {
    await sink.close();
  }
}

type Step = { readonly start: TreeEntry } | { readonly data: Uint8Array };

class SpoolSink implements EntrySink {
  readonly files = new Map<string, SpooledFile>();
  readonly links = new Map<string, string>();
  readonly #dir: string;
  readonly #maxBytes: number;
  readonly #room: DiskRoom;
  #bytes = 0;
  #steps: Step[] = [];
  #count = 0;
  #open: { handle: FileHandle; path: string; file: string; hash: ReturnType<typeof sha256>; size: number } | undefined;

  constructor(dir: string, maxBytes: number) {
    this.#dir = dir;
    this.#maxBytes = maxBytes;
    this.#room = new DiskRoom(dir);
  }

  entry(entry: TreeEntry): void {
    if (++this.#count > MAX_FILES)
      throw new SandboxError("TooLarge", `the image archive has more than ${MAX_FILES} files`);
    const path = components(entry.path).join("/");
    if (entry.type === "symlink") this.links.set(path, entry.target);
    if (entry.type === "link")
      this.links.set(path, posix.relative(posix.dirname(path), components(entry.target).join("/")));
    if (entry.type === "file") this.#steps.push({ start: { ...entry, path } });
  }

  data(bytes: Uint8Array): void {
    this.#bytes += bytes.length;
    if (this.#bytes > this.#maxBytes)
      throw new SandboxError("TooLarge", `the image archive unpacks to more than ${this.#maxBytes} bytes`);
    this.#steps.push({ data: bytes });
  }

  async drain(): Promise<void> {
    const steps = this.#steps;
    this.#steps = [];
    for (const step of steps) {
      if ("start" in step) {
        await this.close();
        const file = `${this.#dir}/${this.files.size}`;
        this.#open = { handle: await open(file, "w", 0o600), path: step.start.path, file, hash: sha256(), size: 0 };
      } else if (this.#open !== undefined) {
        await this.#room.take(step.data.length);
        await this.#open.handle.writeFile(step.data);
        this.#open.hash.update(step.data);
        this.#open.size += step.data.length;
      }
    }
  }

  async close(): Promise<void> {
    const done = this.#open;
    this.#open = undefined;
    if (done === undefined) return;
    await done.handle.close();
    this.files.set(done.path, { file: done.file, sha256: done.hash.hex(), sizeBytes: done.size });
  }
}
