import { SandboxError } from "#core/errors.ts";

/** How people name an artifact that they give a name: `name` or `name:tag`. */
export interface Reference {
  readonly name: string;
  readonly tag: string;
}

/** How people name an artifact that there is: by a tag, or by `name@sha256:…`, which never means another one. */
export type FoundBy = Reference | { readonly name: string; readonly digest: string };

const DEFAULT_TAG = "latest";

const NAME = /^[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:\/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*$/;
const TAG = /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$/;
const DIGEST = /^sha256:[0-9a-f]{64}$/;
const MAX_NAME_LENGTH = 200;

/** Throws `InvalidArgument` for text that cannot be given to an artifact as its name. */
export function parseReference(text: string): Reference {
  const colon = text.lastIndexOf(":");
  const name = colon === -1 ? text : text.slice(0, colon);
  const tag = colon === -1 ? DEFAULT_TAG : text.slice(colon + 1);
  if (!isName(name) || !TAG.test(tag)) throw noReference(text);
  return { name, tag };
}

/** Throws `InvalidArgument` for text that names no artifact in any way. */
export function parseFoundBy(text: string): FoundBy {
  const at = text.indexOf("@");
  if (at === -1) return parseReference(text);
  const [name, digest] = [text.slice(0, at), text.slice(at + 1)];
  if (!isName(name) || !DIGEST.test(digest)) throw noReference(text);
  return { name, digest };
}

/** How a record is found again: by its tag, or by its digest when it was found by that. */
export function foundBy({ name, tag, digest }: Reference & { readonly digest: string }): FoundBy {
  return tag === "" ? { name, digest } : { name, tag };
}

/** `name:tag`, or `name@sha256:…`. */
export function formatReference(reference: FoundBy): string {
  return "tag" in reference ? `${reference.name}:${reference.tag}` : `${reference.name}@${reference.digest}`;
}

function isName(name: string): boolean {
  return name.length <= MAX_NAME_LENGTH && NAME.test(name);
}

function noReference(text: string): SandboxError {
  return new SandboxError("InvalidArgument", `${JSON.stringify(text.slice(0, 200))} does not name an artifact`, {
    hint: "names are a-z and 0-9, joined by . _ - or /, with an optional :tag or @sha256:digest",
  });
}
