import { createHash } from "node:crypto";
import { SandboxError } from "#core/errors.ts";
import { badInput, type EntrySink, shown, type TreeEntry } from "#core/tar/entry.ts";
import { components } from "#core/tar/path.ts";
import { TarReader } from "#core/tar/reader.ts";
import { contentBytes, endOfArchive, type TarEntry, tarHeader, tarPadding } from "#core/tar/writer.ts";
import {
  type Extent,
  encodeTreeData,
  encodeTreeEnd,
  encodeTreeFile,
  encodeTreeMap,
  TREE_EXTENTS_LIMIT,
  TreeDecoder,
  type TreeFile,
} from "#core/tree.ts";

/** What an archive held, for its sender to compare. */
export interface TreeWritten {
  readonly entries: number;
  /** Of the archive. */
  readonly size: number;
  readonly sha256: string;
}

/** A tree as a tar archive, pax where ustar does not reach. Throws `Internal` when the sandbox breaks the coding. */
export async function* tarOfTree(source: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  const decoder = new TreeDecoder();
  const writer = new TarFiles();
  for await (const chunk of source) {
    const pieces: Uint8Array[] = [];
    for (const part of decoder.push(chunk)) {
      if (part.type === "entry") pieces.push(...writer.begin(part.file));
      else if (part.type === "map") writer.map(part.extents);
      else if (part.type === "data") pieces.push(...writer.data(part.bytes));
      else pieces.push(...writer.end(), endOfArchive());
    }
    if (pieces.length > 0) yield pieces.length === 1 && pieces[0] !== undefined ? pieces[0] : Buffer.concat(pieces);
  }
  decoder.end();
}

/** Headers wait for the map that may follow, and files must have the bytes that their headers promise. */
class TarFiles {
  #waiting: TarEntry | undefined;
  #extents: Extent[] | undefined;
  #left = 0;
  #padding = 0;

  begin(file: TreeFile): Uint8Array[] {
    const before = this.end();
    if (file.type === "socket" || file.type === "character-device" || file.type === "block-device") return before;
    this.#waiting = tarEntryOf({ ...file, type: file.type });
    if (this.#waiting.size > 0) return before;
    return [...before, ...this.#head()];
  }

  map(extents: readonly Extent[]): void {
    this.#extents = [...(this.#extents ?? []), ...extents];
    if (this.#waiting === undefined || this.#extents.length > TREE_EXTENTS_LIMIT) throw broken();
  }

  data(bytes: Uint8Array): Uint8Array[] {
    const head = this.#head();
    this.#left -= bytes.length;
    if (this.#left < 0) throw broken();
    return [...head, bytes];
  }

  /** What is left of the entry before. */
  end(): Uint8Array[] {
    const head = this.#head();
    if (this.#left !== 0) throw broken();
    const padding = tarPadding(this.#padding);
    this.#padding = 0;
    return padding.length === 0 ? head : [...head, padding];
  }

  #head(): Uint8Array[] {
    const entry = this.#waiting;
    if (entry === undefined) return [];
    const whole = { ...entry, extents: this.#extents };
    this.#waiting = undefined;
    this.#extents = undefined;
    this.#left = this.#padding = contentBytes(whole);
    return [tarHeader(whole)];
  }
}

function tarEntryOf(file: TreeFile & { readonly type: TarEntry["type"] }): TarEntry {
  const { type, name, mode, uid, gid, size, mtimeNs, target } = file;
  const path = name.length === 0 ? Buffer.from(".") : name;
  return {
    type,
    name: type === "directory" ? Buffer.concat([path, Buffer.from("/")]) : path,
    mode,
    uid,
    gid,
    size: type === "file" ? size : 0,
    mtimeNs,
    target,
    device: 0,
  };
}

function broken(): SandboxError {
  return new SandboxError("Internal", "the sandbox sent a file that is not as long as it said");
}

/**
 * An archive as a tree, a piece of it at a time; `told` hears at its end what it held. Throws `InvalidArgument`, naming the
 * entry, for an archive that is damaged or that would put something outside of its root.
 */
export async function* treeOfTar(
  source: AsyncIterable<Uint8Array>,
  told: (written: TreeWritten) => void,
): AsyncGenerator<Uint8Array> {
  const sink = new TreeSink();
  const reader = new TarReader(sink, { sparse: true });
  const digest = createHash("sha256");
  let size = 0;
  for await (const chunk of source) {
    digest.update(chunk);
    size += chunk.length;
    reader.push(chunk);
    const records = sink.take();
    if (records.length > 0) yield records;
  }
  reader.finish();
  told({ entries: sink.entries, size, sha256: digest.digest("hex") });
  yield encodeTreeEnd();
}

class TreeSink implements EntrySink {
  entries = 0;
  #records: Uint8Array[] = [];

  entry(entry: TreeEntry): void {
    this.entries += 1;
    const name = belowRoot(entry.path, entry.path);
    if (name.length === 0 && entry.type !== "directory") throw badInput(`the entry ${shown(entry.path)} has no name`);
    if (entry.type === "character-device" || entry.type === "block-device") {
      throw badInput(`${shown(entry.path)} is a device node`, "leave devices out: a sandbox brings its own /dev");
    }
    const { type, mode, uid, gid, size, mtimeS, mtimeNs } = entry;
    const file: TreeFile = {
      name,
      type,
      mode: mode & 0o7777,
      uid,
      gid,
      size,
      mtimeNs: BigInt(mtimeS) * 1_000_000_000n + BigInt(mtimeNs),
      target: targetOf(entry),
    };
    this.#records.push(encodeTreeFile(within(file, entry)));
    if (entry.extents !== undefined && size > 0) this.#records.push(...encodeTreeMap(entry.extents));
  }

  data(bytes: Uint8Array): void {
    this.#records.push(...encodeTreeData(bytes));
  }

  take(): Uint8Array {
    const records = Buffer.concat(this.#records);
    this.#records = [];
    return records;
  }
}

/** A path as it lies below the root. An absolute one is refused: where it should lead, the sender and tar do not agree. */
function belowRoot(path: string, owner: string): Buffer {
  if (path.startsWith("/")) {
    throw badInput(`the path ${shown(owner)} is absolute`, "make the archive with paths below its root");
  }
  return Buffer.from(components(path).join("/"), "latin1");
}

function targetOf(entry: TreeEntry): Uint8Array | undefined {
  if (entry.type === "link") return belowRoot(entry.target, entry.path);
  return entry.type === "symlink" ? Buffer.from(entry.target, "latin1") : undefined;
}

/** What the coding cannot carry is the archive's fault. */
function within(file: TreeFile, { path }: TreeEntry): TreeFile {
  const ids = [file.uid, file.gid].every((id) => Number.isInteger(id) && id >= 0 && id < 2 ** 32 - 1);
  const target = file.target?.length ?? 1;
  const time = file.mtimeNs === BigInt.asIntN(64, file.mtimeNs);
  if (ids && time && target > 0 && target <= 4095 && file.name.length <= 4095) return file;
  throw badInput(`the entry ${shown(path)} has an impossible owner, time or target`);
}
