import { type Static, type TProperties, type TSchema, Type } from "typebox";

/** Bytes that are usually text: a string when they are valid UTF-8, else their base64. Linux names and arguments are such. */
export const TextOrBytes = Type.Union([
  Type.String(),
  Type.Object({ base64: Type.String({ contentEncoding: "base64" }) }, { additionalProperties: false }),
]);
export type TextOrBytes = Static<typeof TextOrBytes>;

/** An object that refuses keys it does not know: a misspelt option is an error, never ignored. */
export function closed<Properties extends TProperties>(properties: Properties) {
  return Type.Object(properties, { additionalProperties: false });
}

/** Longer waits and lifetimes than a year are mistakes. */
export const MAX_DURATION_MS = 366 * 24 * 3_600_000;

/** A time span in whole milliseconds, at least one. */
export const DurationMs = Type.Integer({ minimum: 1, maximum: MAX_DURATION_MS });

/** Names have no `=`; neither part has NUL: what execve(2) can carry. */
export const Environment = Type.Record(
  Type.String({ pattern: "^[^=\\u0000]+$" }),
  Type.String({ pattern: "^[^\\u0000]*$" }),
  { additionalProperties: false, maxProperties: 4096 },
);
export type Environment = Static<typeof Environment>;

/** Label names as people write them: letters, digits and `. _ - /`; never `=`, which separates them in a query. */
export const Labels = Type.Record(
  Type.String({ pattern: "^[A-Za-z0-9][A-Za-z0-9._/-]{0,127}$" }),
  Type.String({ maxLength: 1024 }),
  { additionalProperties: false, maxProperties: 64 },
);
export type Labels = Static<typeof Labels>;

/** A user of the sandbox: `name`, `uid`, `name:group` or `uid:gid`. */
export const UserName = Type.String({ minLength: 1, maxLength: 256, pattern: "^[^\\u0000\\n]+$" });

/** An absolute path inside a sandbox as text. */
export const PathText = Type.String({ minLength: 1, maxLength: 4095, pattern: "^/[^\\u0000]*$" });

/** An absolute path in a query: percent-encoded bytes, which need not be UTF-8. */
export const PathBytes = Type.Unsafe<Uint8Array>({
  type: "string",
  description: "Absolute path: percent-encoded bytes, which need not be UTF-8. At most 4095 bytes.",
  "x-bytes": true,
});

/** Where a symbolic link points, in a query: any bytes but NUL. */
export const LinkBytes = Type.Unsafe<Uint8Array>({
  type: "string",
  description: "Percent-encoded bytes, which need not be UTF-8. At most 4095 bytes.",
  "x-bytes": true,
  "x-relative": true,
});

/** Permission bits in a query, as chmod(1) takes them. */
export const ModeText = Type.String({ pattern: "^[0-7]{1,4}$", description: "Permission bits in octal, such as 644." });

/** Labels in a query: what carries all of them is meant. */
export const LabelFilter = Type.Array(Type.String({ pattern: "^[^=]+=[^]*$" }), {
  description: "name=value; repeatable.",
});

/** One of the given words. */
export function oneOf<const Words extends readonly string[]>(words: Words, description?: string) {
  return Type.Unsafe<Words[number]>({
    type: "string",
    enum: [...words],
    ...(description === undefined ? {} : { description }),
  });
}

/** The same schema with a sentence for people. */
export function described<Schema extends TSchema>(schema: Schema, description: string): Schema {
  return { ...schema, description };
}
