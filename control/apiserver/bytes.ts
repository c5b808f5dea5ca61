import { isUtf8 } from "node:buffer";
import type { TextOrBytes } from "#api/index.ts";
import { SandboxError } from "#core/errors.ts";

/** Linux refuses longer arguments (MAX_ARG_STRLEN with its NUL). */
const MAX_ARGUMENT_BYTES = 131_071;

/** What the agent takes of one line. */
const MAX_LINE_BYTES = 1024 * 1024;

/** An argument as execve(2) takes it. `InvalidArgument` for NUL bytes, bad base64, and what Linux finds too long. */
export function argumentOf(value: TextOrBytes, field: string): string | Uint8Array {
  return bytesOf(value, field, { most: MAX_ARGUMENT_BYTES, taker: "Linux" });
}

/** A line of a session. `InvalidArgument` for NUL bytes, bad base64, and what is too long. */
export function lineOf(value: TextOrBytes, field: string): string | Uint8Array {
  return bytesOf(value, field, { most: MAX_LINE_BYTES, taker: "a session" });
}

function bytesOf(
  value: TextOrBytes,
  field: string,
  { most, taker }: { readonly most: number; readonly taker: string },
): string | Uint8Array {
  const argument = typeof value === "string" ? value : fromBase64(value.base64, field);
  if (typeof argument === "string" ? argument.includes("\0") : argument.includes(0)) {
    throw refused(field, "contains a NUL byte");
  }
  const length = typeof argument === "string" ? Buffer.byteLength(argument) : argument.byteLength;
  if (length > most) {
    throw refused(field, `has ${length} bytes; ${taker} takes ${most} at most`, "send it through stdin or a file");
  }
  return argument;
}

/** Any bytes. `InvalidArgument` for bad base64. */
export function bytesFrom(value: TextOrBytes, field: string): Uint8Array {
  return typeof value === "string" ? Buffer.from(value) : fromBase64(value.base64, field);
}

/** Bytes as text where they are UTF-8, else as base64. */
export function textOrBytes(bytes: string | Uint8Array): TextOrBytes {
  if (typeof bytes === "string") return bytes;
  return isUtf8(bytes) ? view(bytes).toString("utf8") : { base64: base64(bytes) };
}

/** Base64 with padding. */
export function base64(bytes: Uint8Array): string {
  return view(bytes).toString("base64");
}

function fromBase64(text: string, field: string): Uint8Array {
  const bytes = Buffer.from(text, "base64");
  // Buffer.from skips what it does not know: only a round trip shows that the text was base64.
  if (bytes.toString("base64") !== text) throw refused(field, "is not base64 with padding");
  return bytes;
}

function view(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

function refused(field: string, what: string, hint?: string): SandboxError {
  return new SandboxError("InvalidArgument", `${field} ${what}`, {
    details: { field },
    ...(hint === undefined ? {} : { hint }),
  });
}
