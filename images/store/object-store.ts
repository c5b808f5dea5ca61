import { SandboxError } from "#core/errors.ts";

/**
 * Where layers and artifacts are kept for many nodes: objects by key in a directory or in S3. Any number of nodes use one at
 * once; a node that dies holds nothing. Whoever reads checks what it got: a store may be damaged. All calls end within the store's
 * limit on progress, never by a limit on the whole; all reject with `Unavailable` when the store does not answer, `PermissionDenied`
 * when it refuses, and the signal's reason.
 */
export interface ObjectStore extends AsyncDisposable {
  /** For people: `directory /mnt/layers`, `s3://bucket/prefix at https://…`. Free of secrets. */
  readonly name: string;
  /**
   * The bytes of an object, or of a range that lies within it; nothing is asked before the first piece is. Rejects with `NotFound`, or
   * with `Internal` for an object that ends before the range does. What ends without an error is as long as it should be.
   */
  get(key: string, range: ByteRange | undefined, signal: AbortSignal): AsyncIterable<Uint8Array>;
  /**
   * Adds an object whole or not at all, replacing what had the key. Rejects with `Internal` when the content is not what it says it is,
   * `StorageFull`.
   */
  put(key: string, content: ObjectContent, signal: AbortSignal): Promise<void>;
  /** `undefined` for no object. */
  head(key: string, signal: AbortSignal): Promise<ObjectInfo | undefined>;
  /** Objects whose keys begin with `prefix`, a page at a time, in no order. What comes or goes meanwhile may be among them. */
  list(prefix: string, signal: AbortSignal): AsyncIterable<ObjectEntry>;
  /** Idempotent. */
  remove(key: string, signal: AbortSignal): Promise<void>;
  /** Where the object can be read in place, without being copied; it need not exist. `undefined` where there are no such places. */
  path(key: string): string | undefined;
  /** How long others may not see what was put or removed: 0 where every call sees what was done before it began. */
  settlingMs(signal: AbortSignal): Promise<number>;
  /** Rejects as `get` does when the store cannot be used. */
  probe(signal: AbortSignal): Promise<void>;
}

/** Part of an object: `lengthBytes` from `offset` on. */
export interface ByteRange {
  readonly offset: number;
  readonly lengthBytes: number;
}

/** What an object is to hold; `open` is called again for every attempt. */
export interface ObjectContent {
  readonly sizeBytes: number;
  /** Lower-case hex. */
  readonly sha256: string;
  open(): AsyncIterable<Uint8Array>;
}

/** What a store knows of an object without reading it. */
export interface ObjectInfo {
  readonly sizeBytes: number;
  /** When it was put: milliseconds since 1970 by the store's own clock, to the second. */
  readonly modifiedAtMs: number;
}

/** An object of a listing. */
export interface ObjectEntry extends ObjectInfo {
  readonly key: string;
}

/** Without progress for so long, a call of a store fails: slow is fine, stuck is not. */
export const STALL_MS = 30_000;

const KEY = /^[A-Za-z0-9_][A-Za-z0-9._-]*(?:\/[A-Za-z0-9_][A-Za-z0-9._-]*)*$/;
/** S3 takes 1,024 with the prefix of the store before it. */
const MAX_KEY_LENGTH = 600;

/** True for keys that every kind of store takes as they are: no part is empty or begins with a dot. */
export function isObjectKey(key: string): boolean {
  return key.length <= MAX_KEY_LENGTH && KEY.test(key);
}

/** Throws a plain `Error` for other keys: callers make keys, users do not. */
export function checkKey(key: string): void {
  if (!isObjectKey(key)) throw new Error(`not a key of an object: ${JSON.stringify(key.slice(0, 100))}`);
}

/** A whole object that is small. Rejects with `Internal` when it has more than `maxBytes`. */
export async function readObject(
  store: ObjectStore,
  key: string,
  maxBytes: number,
  signal: AbortSignal,
): Promise<Buffer> {
  const pieces: Uint8Array[] = [];
  let sizeBytes = 0;
  for await (const piece of store.get(key, undefined, signal)) {
    sizeBytes += piece.length;
    if (sizeBytes > maxBytes) throw damagedObject(key, `it has more than ${maxBytes} bytes`);
    pieces.push(piece);
  }
  return Buffer.concat(pieces);
}

/** A whole object that is a small text; `undefined` when it is not there. Rejects as `readObject` does. */
export async function readIfThere(
  objects: ObjectStore,
  key: string,
  maxBytes: number,
  signal: AbortSignal,
): Promise<string | undefined> {
  try {
    return (await readObject(objects, key, maxBytes, signal)).toString();
  } catch (error) {
    if (error instanceof SandboxError && error.kind === "NotFound") return undefined;
    throw error;
  }
}

/** The error for a key that the store does not have. */
export function noObject(key: string): SandboxError {
  return new SandboxError("NotFound", `the store has no object ${key}`, {
    hint: "push the artifact again from a node that has it",
    details: { key },
  });
}

/** The error for an object, or content for one, that is not what it should be. */
export function damagedObject(key: string, what: string): SandboxError {
  return new SandboxError("Internal", `object ${key} is damaged: ${what}`, {
    hint: "remove the object from the store and push the artifact again from a node that has it",
    details: { key },
  });
}

/** The error for a store that does not answer as it should. */
export function storeUnavailable(store: string, doing: string, cause?: unknown): SandboxError {
  return new SandboxError("Unavailable", `${store} failed while ${doing}`, {
    cause,
    hint: "dsec status tells whether the store answers; what is on the node goes on working",
  });
}

/** The error for a store that takes no more. */
export function objectStoreFull(store: string, cause?: unknown): SandboxError {
  return new SandboxError("StorageFull", `${store} has no room left`, {
    cause,
    hint: "remove artifacts that are not used any more, collect what they leave, or enlarge the store",
  });
}
