import { SandboxError } from "#core/errors.ts";
import { escaped, unescaped } from "#core/marks.ts";

const MARK = "$bulk";

/**
 * Values with many or long bytes in them, as JSON and one run of bytes: each `Uint8Array` becomes `{"$bulk": size}`, and its bytes follow
 * those of the ones before it. `pack.ts` is for values whose bytes are few.
 */
export function separate(value: unknown): { readonly value: unknown; readonly bytes: readonly Uint8Array[] } {
  const bytes: Uint8Array[] = [];
  return { value: replaced(value, bytes), bytes };
}

function replaced(value: unknown, bytes: Uint8Array[]): unknown {
  if (value instanceof Uint8Array) {
    bytes.push(value);
    return { [MARK]: value.length };
  }
  if (Array.isArray(value)) return value.map((item) => replaced(item, bytes));
  if (typeof value !== "object" || value === null) return value;
  const fields = Object.entries(value).filter(([, field]) => field !== undefined);
  return Object.fromEntries(escaped(fields, MARK).map(([key, field]) => [key, replaced(field, bytes)]));
}

/** The inverse of `separate`. Throws `InvalidArgument` when the bytes are not those that the value tells of. */
export function join(value: unknown, bytes: Uint8Array): unknown {
  const rest = { at: 0 };
  const joined = restored(value, bytes, rest);
  if (rest.at !== bytes.length) throw mismatch();
  return joined;
}

function restored(value: unknown, bytes: Uint8Array, rest: { at: number }): unknown {
  if (Array.isArray(value)) return value.map((item) => restored(item, bytes, rest));
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value);
  const [first] = entries;
  if (entries.length === 1 && first?.[0] === MARK) {
    const size: unknown = first[1];
    if (typeof size !== "number" || !(size >= 0) || rest.at + size > bytes.length) throw mismatch();
    rest.at += size;
    return bytes.subarray(rest.at - size, rest.at);
  }
  return Object.fromEntries(unescaped(entries, MARK).map(([key, field]) => [key, restored(field, bytes, rest)]));
}

function mismatch(): SandboxError {
  return new SandboxError("InvalidArgument", "the bytes of a message are not those that it tells of");
}
