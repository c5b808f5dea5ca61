import { escaped, unescaped } from "#core/marks.ts";

const MARK = "$bytes";

/**
 * Values of the contracts as JSON. The one thing they hold that JSON does not is bytes: those become `{"$bytes": base64}`.
 * Fields that are `undefined` disappear, and read as `undefined` again.
 */
export function pack(value: unknown): unknown {
  if (value instanceof Uint8Array) return { [MARK]: Buffer.from(value).toString("base64") };
  if (Array.isArray(value)) return value.map(pack);
  if (typeof value !== "object" || value === null) return value;
  const fields = Object.entries(value).filter(([, field]) => field !== undefined);
  return Object.fromEntries(escaped(fields, MARK).map(([key, field]) => [key, pack(field)]));
}

/** The inverse of `pack`, for any JSON value. The shape of the result is the caller's to check. */
export function unpack(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(unpack);
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value);
  const [first] = entries;
  if (entries.length === 1 && first !== undefined && first[0] === MARK && typeof first[1] === "string") {
    return new Uint8Array(Buffer.from(first[1], "base64"));
  }
  // A null prototype key of a hostile peer must stay a key: fromEntries defines, it does not assign.
  return Object.fromEntries(unescaped(entries, MARK).map(([key, field]) => [key, unpack(field)]));
}

/** One text for equal values, whatever the order of their keys. */
export function canonical(value: unknown): string {
  return JSON.stringify(sorted(pack(value)));
}

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([key, field]) => [key, sorted(field)]),
  );
}
