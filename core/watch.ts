import { SandboxError } from "#core/errors.ts";

/**
 * What happens to files below a directory that is watched. Paths are below it; an empty one means the watched directory or file itself,
 * and its removal is the last event. An entry that is made while its directory is found may be told of twice.
 */
export type WatchEvent =
  /** Everything from here on is told. The first event. */
  | { readonly type: "ready" }
  | {
      readonly type: "created" | "modified" | "removed" | "attributes";
      readonly path: Uint8Array;
      readonly directory: boolean;
    }
  | { readonly type: "moved"; readonly path: Uint8Array; readonly from: Uint8Array; readonly directory: boolean }
  /** More happened than was kept: look at the files themselves. */
  | { readonly type: "overflow" };

/**
 * The coding of the agent: records that follow each other without a gap.
 *
 *     offset  size  field
 *          0     4  u32  length of what follows this field
 *          4     1  u8   type: 0 ready, 1 created, 2 modified, 3 removed, 4 moved, 5 attributes, 6 overflow
 *          5     1  u8   1: a directory
 *          6     2  u16  bytes of the path
 *          8     2  u16  bytes of the path before, of moved
 *         10     2  zero
 *         12     -  path, path before
 */
const TYPES = ["ready", "created", "modified", "removed", "moved", "attributes", "overflow"] as const;
const FIXED_BYTES = 12;
const PREFIX_BYTES = 4;
const PATH_LIMIT = 4095;

/** Reads events out of chunks that may be cut anywhere; the sandbox that sends them is not trusted. */
export class WatchDecoder {
  #rest: Uint8Array = new Uint8Array();

  /** The events completed by `chunk`. Throws `Internal` at the first byte that breaks the coding. */
  push(chunk: Uint8Array): WatchEvent[] {
    const bytes = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk]);
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const events: WatchEvent[] = [];
    let at = 0;
    while (bytes.length - at >= FIXED_BYTES) {
      const [size, fromSize] = [view.getUint16(at + 6, true), view.getUint16(at + 8, true)];
      const extent = FIXED_BYTES + size + fromSize;
      if (PREFIX_BYTES + view.getUint32(at, true) !== extent || size > PATH_LIMIT || fromSize > PATH_LIMIT) {
        throw malformed("lengths that do not add up");
      }
      if (bytes.length - at < extent) break;
      events.push(eventOf(bytes.subarray(at, at + extent), size));
      at += extent;
    }
    this.#rest = new Uint8Array(bytes.subarray(at));
    return events;
  }
}

function eventOf(record: Uint8Array, size: number): WatchEvent {
  const type = TYPES[record[4] ?? 255];
  const isDirectory = record[5] ?? 255;
  if (type === undefined || isDirectory > 1 || record[10] !== 0 || record[11] !== 0)
    throw malformed("an unknown event");
  const path = new Uint8Array(record.subarray(FIXED_BYTES, FIXED_BYTES + size));
  const from = new Uint8Array(record.subarray(FIXED_BYTES + size));
  if ((type === "ready" || type === "overflow") && path.length > 0) throw malformed("a path where there is none");
  if (type !== "moved" && from.length > 0) throw malformed("a path before of what was not moved");
  if (type === "ready" || type === "overflow") return { type };
  return type === "moved"
    ? { type, path, from, directory: isDirectory === 1 }
    : { type, path, directory: isDirectory === 1 };
}

function malformed(what: string): SandboxError {
  return new SandboxError("Internal", `the sandbox told of files in a coding that is not ours: ${what}`);
}
