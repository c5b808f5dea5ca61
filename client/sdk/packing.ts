import { randomUUID } from "node:crypto";
import type { PackRequest, PackView } from "#api/index.ts";
import type { Caller, CallOptions } from "./caller.ts";

/** A large sandbox takes a while to read and to hash. */
const PACK_TIMEOUT_MS = 600_000;

/** What to make of a sandbox's changes. */
export interface PackOptions extends CallOptions {
  /** Of the snapshot: `name` or `name:tag`. */
  readonly name: string;
  /** Glob patterns of paths to leave out: `*` within a name, `**` over any; one without `/` holds wherever it lies. */
  readonly exclude?: readonly string[];
  /** What is scrubbed unless it is named here. */
  readonly keep?: PackRequest["keep"];
  /** False: its processes are not held still for the moment. */
  readonly consistent?: boolean;
  /** The same key makes one snapshot, however often it is sent. Made up when absent. */
  readonly idempotencyKey?: string;
}

/** Packs the sandbox at `path`. */
export function packDiff(caller: Caller, path: string, options: PackOptions): Promise<PackView> {
  const { name, exclude, keep, consistent, idempotencyKey = randomUUID() } = options;
  const { signal, timeoutMs = PACK_TIMEOUT_MS } = options;
  const json: PackRequest = {
    name,
    ...(exclude === undefined ? {} : { exclude: [...exclude] }),
    ...(keep === undefined ? {} : { keep }),
    ...(consistent === undefined ? {} : { consistent }),
  };
  const headers = { "idempotency-key": idempotencyKey };
  return caller.json({ signal, timeoutMs, method: "POST", path: `${path}/pack`, json, headers, repeatable: true });
}
