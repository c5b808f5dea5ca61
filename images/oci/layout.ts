import { createReadStream, statSync } from "node:fs";
import { readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { badInput, shown } from "#core/tar/entry.ts";
import { sha256 } from "../digest.ts";
import type { ImageFiles } from "./files.ts";

const PATH = /^(?:index\.json|oci-layout|blobs\/sha256\/[0-9a-f]{64})$/;
const PIECE_BYTES = 256 * 1024;

/** An OCI image layout in a directory that is ours; what is in its files is not trusted. */
export class LayoutDirectory implements ImageFiles {
  readonly #dir: string;

  constructor(dir: string) {
    this.#dir = dir;
  }

  has(path: string): boolean {
    return PATH.test(path) && statSync(join(this.#dir, path), { throwIfNoEntry: false })?.isFile() === true;
  }

  async read(path: string, maxBytes: number): Promise<string> {
    const file = this.#file(path);
    if ((await stat(file)).size > maxBytes)
      throw badInput(`${shown(path)} of the image is larger than ${maxBytes} bytes`);
    return await readFile(file, "utf8");
  }

  stream(path: string): AsyncIterable<Uint8Array> {
    return createReadStream(this.#file(path), { highWaterMark: PIECE_BYTES });
  }

  async sha256(path: string): Promise<string> {
    const running = sha256();
    for await (const piece of this.stream(path)) running.update(piece);
    return running.hex();
  }

  #file(path: string): string {
    if (!this.has(path)) throw badInput(`the image lacks ${shown(path)}`, "copy it again, with all its layers");
    return join(this.#dir, path);
  }
}
