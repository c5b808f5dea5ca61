import { SandboxError } from "#core/errors.ts";

const UTF8 = new TextDecoder("utf-8", { fatal: true });

/** The JSON value of a body. Bytes that are not UTF-8, and escapes that stand for no character, are refused: they would change silently. */
export function parseJson(body: Uint8Array): unknown {
  const text = decode(body);
  const value = parse(text);
  if (/\\ud[89a-f]/i.test(text) && hasLoneSurrogate(value)) {
    throw new SandboxError("InvalidArgument", "a string in the body is not valid Unicode", {
      hint: 'send bytes that are not UTF-8 as {"base64": …}',
    });
  }
  return value;
}

function decode(body: Uint8Array): string {
  try {
    return UTF8.decode(body);
  } catch {
    throw new SandboxError("InvalidArgument", "the body is not UTF-8", {
      hint: 'send bytes that are not UTF-8 as {"base64": …}',
    });
  }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    const where = error instanceof SyntaxError ? `: ${error.message.slice(0, 120)}` : "";
    throw new SandboxError("InvalidArgument", `the body is not JSON${where}`);
  }
}

function hasLoneSurrogate(value: unknown): boolean {
  if (typeof value === "string") return !value.isWellFormed();
  if (typeof value !== "object" || value === null) return false;
  return Object.entries(value).some(([key, own]) => !key.isWellFormed() || hasLoneSurrogate(own));
}
