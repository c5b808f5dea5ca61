import type { Mechanism } from "#host/lazy/requests.ts";
import type { BlobDigest } from "../digest.ts";
import type { S3Credentials } from "../store/credentials.ts";
import type { StorePlace } from "../store/open.ts";
import type { LazyReport } from "./lazy-blobs.ts";

/** The store that a filler opens for itself. */
export interface LazyStore {
  readonly place: StorePlace;
  readonly credentials: S3Credentials | undefined;
}

/** What a filler is told first. */
export interface LazySetup {
  readonly mechanism: Mechanism;
  readonly runDir: string;
  readonly cacheDir: string;
  readonly cacheBytes: number;
  /** How long a reader waits for data before it gets EIO. */
  readonly deadlineMs: number;
  readonly store: LazyStore;
  /** Blobs in use: they stay in the cache. */
  readonly held: readonly BlobDigest[];
}

/** What a node asks of its filler. All are safe to repeat. */
export type LazyCall =
  | { readonly call: "acquire"; readonly blob: BlobDigest }
  | { readonly call: "release"; readonly blob: BlobDigest }
  | { readonly call: "report"; readonly blobs: readonly BlobDigest[] };

/** What the calls answer. */
export interface LazyAnswers {
  /** The file to mount. */
  readonly acquire: string;
  readonly release: null;
  readonly report: readonly LazyReport[];
}
