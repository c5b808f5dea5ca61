import { createHash, hash } from "node:crypto";
import { SandboxError } from "#core/errors.ts";
import type { LayerDigest } from "#core/sandbox.ts";

const DIGEST = /^sha256:[0-9a-f]{64}$/;

/** Throws `InvalidArgument` for text that is not `sha256:` and 64 lower-case hex digits. */
export function parseLayerDigest(text: string): LayerDigest {
  if (!DIGEST.test(text)) {
    throw new SandboxError("InvalidArgument", `${JSON.stringify(text.slice(0, 80))} is not a layer digest`, {
      hint: "a digest is sha256: followed by 64 hexadecimal digits",
    });
  }
  return text as LayerDigest;
}

/** True for text that can name a layer, or an artifact. */
export function isLayerDigest(text: unknown): text is LayerDigest {
  return typeof text === "string" && DIGEST.test(text);
}

/** Names a blob: `sha256:` and the hash of its descriptor. */
export type BlobDigest = string & { readonly __brand: "BlobDigest" };

/** The digest that 64 hex digits stand for, as the name of a directory in a store does. */
export function blobDigest(hex: string): BlobDigest {
  return `sha256:${hex}` as BlobDigest;
}

/** True for text that can name a blob. */
export function isBlobDigest(text: unknown): text is BlobDigest {
  return typeof text === "string" && DIGEST.test(text);
}

/** True for 64 lower-case hex digits. */
export function isHexDigest(text: unknown): text is string {
  return typeof text === "string" && /^[0-9a-f]{64}$/.test(text);
}

/** The hex part: what files and directories of a layer or blob are named by. */
export function hexOf(digest: LayerDigest | BlobDigest): string {
  return digest.slice("sha256:".length);
}

/** Lower-case hex of the SHA-256 of `bytes`. */
export function sha256Hex(bytes: Uint8Array | string): string {
  return hash("sha256", bytes, "hex");
}

/** A running SHA-256. */
export function sha256(): { update(bytes: Uint8Array): void; hex(): string } {
  const running = createHash("sha256");
  return { update: (bytes) => void running.update(bytes), hex: () => running.digest("hex") };
}

/** JSON with sorted keys and no space: equal values give equal text, so that its hash names the value. */
export function canonicalJson(value: unknown): string {
  return JSON.stringify(value, (_key, inner: unknown) => {
    if (inner === null || typeof inner !== "object" || Array.isArray(inner)) return inner;
    return Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : 1)));
  });
}

/** True for a number of bytes that is not 0. */
export function isByteCount(value: unknown): value is number {
  return typeof value === "number" && Number.isSafeInteger(value) && value > 0;
}

/** The object that a text is in JSON; `undefined` for anything else. */
export function jsonObject(text: string): Readonly<Record<string, unknown>> | undefined {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  // Any object can be looked at by the names of its properties.
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : undefined;
}
