import { SandboxError } from "#core/errors.ts";

/** How people name an artifact: `name` or `name:tag`. */
export interface Reference {
  readonly name: string;
  readonly tag: string;
}

const DEFAULT_TAG = "latest";

const NAME = /^[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:\/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*$/;
const TAG = /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$/;
const MAX_NAME_LENGTH = 200;

/** Throws `InvalidArgument` for text that cannot name an artifact. */
export function parseReference(text: string): Reference {
  const colon = text.lastIndexOf(":");
  const name = colon === -1 ? text : text.slice(0, colon);
  const tag = colon === -1 ? DEFAULT_TAG : text.slice(colon + 1);
  if (name.length > MAX_NAME_LENGTH || !NAME.test(name) || !TAG.test(tag)) {
    throw new SandboxError("InvalidArgument", `${JSON.stringify(text.slice(0, 200))} does not name an artifact`, {
      hint: "names are a-z and 0-9, joined by . _ - or /, with an optional :tag",
    });
  }
  return { name, tag };
}

/** `name:tag`. */
export function formatReference({ name, tag }: Reference): string {
  return `${name}:${tag}`;
}
