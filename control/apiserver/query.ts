import { type TObject, type TSchema, Type } from "typebox";
import { SandboxError } from "#core/errors.ts";
import { validator } from "./validate.ts";

/** Linux refuses longer paths (PATH_MAX with its NUL). */
const MAX_PATH_BYTES = 4095;
const UTF8 = new TextDecoder("utf-8", { fatal: true });

/** Reads the query of a URL as `schema` has it; anything else, unknown keys included, is `InvalidArgument`. */
export function queryReader(schema: TObject): (url: string) => unknown {
  const properties: Readonly<Record<string, TSchema>> = schema.properties;
  const check = validator(withoutBytes(schema), "query");
  const empty = Object.keys(properties).length === 0;
  return (url) => {
    const start = url.indexOf("?");
    const text = start === -1 ? "" : url.slice(start + 1);
    if (text === "" && empty) return {};
    const found: Record<string, unknown> = Object.create(null);
    for (const part of text.split("&")) if (part !== "") put(found, properties, part);
    return check(found);
  };
}

/** The bytes of one percent-encoded part of a query; `+` is a space, as in forms. */
function decodeBytes(text: string): Buffer {
  const bytes = Buffer.alloc(Buffer.byteLength(text));
  let length = 0;
  for (let at = 0; at < text.length; at++) {
    const char = text[at] ?? "";
    if (char === "%") {
      const hex = text.slice(at + 1, at + 3);
      if (!/^[0-9a-f]{2}$/i.test(hex)) throw malformed(text);
      bytes[length++] = Number.parseInt(hex, 16);
      at += 2;
    } else if (char === "+") bytes[length++] = 0x20;
    else length += bytes.write(char, length);
  }
  return bytes.subarray(0, length);
}

function put(found: Record<string, unknown>, properties: Readonly<Record<string, TSchema>>, part: string): void {
  const equals = part.indexOf("=");
  const name = decodeText(equals === -1 ? part : part.slice(0, equals));
  const raw = equals === -1 ? "" : part.slice(equals + 1);
  const schema = Object.hasOwn(properties, name) ? properties[name] : undefined;
  // The validator knows how to complain about keys that the schema does not have.
  if (schema === undefined) found[name] = raw;
  else if (hasType(schema, "array")) found[name] = [...((found[name] as unknown[]) ?? []), decodeText(raw)];
  else if (name in found) throw new SandboxError("InvalidArgument", `${name} is given twice in the query`);
  else found[name] = coerce(schema, name, raw);
}

function coerce(schema: TSchema, name: string, raw: string): unknown {
  if (isBytes(schema)) return pathOf(name, decodeBytes(raw), "x-relative" in schema);
  const text = decodeText(raw);
  if (hasType(schema, "integer")) return /^-?\d{1,16}$/.test(text) ? Number(text) : text;
  if (hasType(schema, "number")) return /^-?\d{1,16}(\.\d{1,16})?$/.test(text) ? Number(text) : text;
  if (hasType(schema, "boolean"))
    return text === "true" || text === "1" ? true : text === "false" || text === "0" ? false : text;
  return text;
}

function pathOf(name: string, bytes: Buffer, relative: boolean): Buffer {
  if (relative && bytes.length === 0) throw new SandboxError("InvalidArgument", `${name} is empty`);
  if (!relative && bytes[0] !== 0x2f) throw new SandboxError("InvalidArgument", `${name} must be an absolute path`);
  if (bytes.includes(0)) throw new SandboxError("InvalidArgument", `${name} contains a NUL byte`);
  if (bytes.length > MAX_PATH_BYTES) {
    throw new SandboxError(
      "InvalidArgument",
      `${name} has ${bytes.length} bytes; a path has ${MAX_PATH_BYTES} at most`,
    );
  }
  return bytes;
}

function decodeText(text: string): string {
  if (/^[\w.~/:,@-]*$/.test(text)) return text;
  try {
    return UTF8.decode(decodeBytes(text));
  } catch (error) {
    if (error instanceof SandboxError) throw error;
    throw new SandboxError("InvalidArgument", `${JSON.stringify(text.slice(0, 80))} in the query is not UTF-8`);
  }
}

function malformed(text: string): SandboxError {
  return new SandboxError(
    "InvalidArgument",
    `${JSON.stringify(text.slice(0, 80))} in the query is not percent-encoded`,
    {
      hint: "encode % itself as %25",
    },
  );
}

function hasType(schema: TSchema, type: string): boolean {
  return "type" in schema && schema.type === type;
}

function isBytes(schema: TSchema): boolean {
  return "x-bytes" in schema;
}

/** Paths are checked where they are decoded: to the validator they are anything, but present. */
function withoutBytes(schema: TObject): TObject {
  const properties: Readonly<Record<string, TSchema>> = schema.properties;
  return Type.Object(
    Object.fromEntries(Object.entries(properties).map(([name, own]) => [name, isBytes(own) ? Type.Unknown() : own])),
    { additionalProperties: false },
  );
}
