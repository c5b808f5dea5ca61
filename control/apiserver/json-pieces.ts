import { isUtf8 } from "node:buffer";

/** A multiple of three: pieces of base64 join without padding between them. */
const PIECE_BYTES = 48 * 1024;

/**
 * The JSON of a value in pieces, each `Uint8Array` in it as `TextOrBytes`: text where it is UTF-8, else base64. However large the bytes
 * are, one piece of their JSON is made at a time. Fields that are `undefined` are left out. `end` follows the value.
 */
export function* jsonPieces(value: unknown, end = ""): Generator<Uint8Array, void, undefined> {
  let text = "";
  for (const part of partsOf(value)) {
    text += part;
    if (text.length < PIECE_BYTES) continue;
    yield Buffer.from(text);
    text = "";
  }
  if (text + end !== "") yield Buffer.from(text + end);
}

function* partsOf(value: unknown): Generator<string, void, undefined> {
  if (value instanceof Uint8Array) yield* bytesParts(Buffer.from(value.buffer, value.byteOffset, value.byteLength));
  else if (Array.isArray(value)) {
    for (const [index, item] of value.entries()) {
      yield index === 0 ? "[" : ",";
      yield* partsOf(item);
    }
    yield value.length === 0 ? "[]" : "]";
  } else if (typeof value === "object" && value !== null) {
    const fields = Object.entries(value).filter(([, field]) => field !== undefined);
    for (const [index, [key, field]] of fields.entries()) {
      yield `${index === 0 ? "{" : ","}${JSON.stringify(key)}:`;
      yield* partsOf(field);
    }
    yield fields.length === 0 ? "{}" : "}";
  } else yield JSON.stringify(value);
}

function* bytesParts(bytes: Buffer): Generator<string, void, undefined> {
  const isText = isUtf8(bytes);
  yield isText ? '"' : '{"base64":"';
  for (let at = 0; at < bytes.length; ) {
    let end = Math.min(at + PIECE_BYTES, bytes.length);
    if (isText) {
      // A character is not cut: none is longer than four bytes.
      while (end < bytes.length && ((bytes[end] ?? 0) & 0xc0) === 0x80) end -= 1;
      yield JSON.stringify(bytes.toString("utf8", at, end)).slice(1, -1);
    } else yield bytes.toString("base64", at, end);
    at = end;
  }
  yield isText ? '"' : '"}';
}
