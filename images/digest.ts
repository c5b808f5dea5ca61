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

/** The hex part: what files and directories of a layer are named by. */
export function hexOf(digest: LayerDigest): string {
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
