import { badInput } from "#core/tar/entry.ts";

/** Documents of an image are small; what is larger is an attack or an accident. */
export const MAX_DOCUMENT_BYTES = 4 * 2 ** 20;

/** A JSON object of an image archive, read field by field: what is not as it must be is an `InvalidArgument` naming it. */
export class Document {
  readonly #name: string;
  readonly #value: Readonly<Record<string, unknown>>;

  constructor(name: string, value: unknown) {
    if (value === null || typeof value !== "object" || Array.isArray(value))
      throw badInput(`${name} is no JSON object`);
    this.#name = name;
    this.#value = value as Readonly<Record<string, unknown>>;
  }

  /** `undefined` when the field is missing or null. */
  text(field: string): string | undefined {
    const value = this.#value[field] ?? undefined;
    if (value === undefined || typeof value === "string") return value;
    throw this.#wrong(field);
  }

  /** `undefined` when the field is missing or null. */
  number(field: string): number | undefined {
    const value = this.#value[field] ?? undefined;
    if (value === undefined || typeof value === "number") return value;
    throw this.#wrong(field);
  }

  required(field: string): string {
    return this.text(field) ?? this.#fail(field);
  }

  object(field: string): Document | undefined {
    const value = this.#value[field] ?? undefined;
    return value === undefined ? undefined : new Document(`${field} of ${this.#name}`, value);
  }

  objects(field: string): readonly Document[] {
    return this.#array(field).map((value) => new Document(`an entry of ${field} in ${this.#name}`, value));
  }

  /** Every field, each a text. */
  textFields(): Readonly<Record<string, string>> {
    return Object.fromEntries(Object.keys(this.#value).map((field) => [field, this.required(field)]));
  }

  texts(field: string): readonly string[] {
    return this.#array(field).map((value) => (typeof value === "string" ? value : this.#fail(field)));
  }

  #array(field: string): readonly unknown[] {
    const value = this.#value[field] ?? [];
    return Array.isArray(value) ? value : this.#fail(field);
  }

  #fail(field: string): never {
    throw this.#wrong(field);
  }

  #wrong(field: string): Error {
    return badInput(`${this.#name} of the image archive has no valid ${field}`);
  }
}

/** Parses a text of the archive. */
export function parseJson(name: string, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw badInput(`${name} of the image archive is not JSON`, undefined, error);
  }
}
