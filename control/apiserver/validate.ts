import type { TSchema } from "typebox";
import { Compile } from "typebox/compile";
import { SandboxError } from "#core/errors.ts";

/** Checks values against a schema: returns the value itself, or throws `InvalidArgument` that names field and bound. */
export function validator(schema: TSchema, where: "body" | "query" | "runtime.json"): (value: unknown) => unknown {
  const compiled = Compile(schema);
  return (value) => {
    if (compiled.Check(value)) return value;
    throw refusal(compiled.Errors(value), schema, where, value);
  };
}

interface Fault {
  readonly keyword: string;
  readonly instancePath: string;
  readonly message: string;
  readonly params: object;
}

/** Values are quoted in messages up to this length: enough to recognise them. */
const QUOTED_LENGTH = 80;

function refusal(faults: readonly Fault[], schema: TSchema, where: string, value: unknown): SandboxError {
  const unknown = faults.find((fault) => fault.keyword === "additionalProperties");
  if (unknown !== undefined) return unknownKey(unknown, schema, where);
  const missing = faults.find((fault) => fault.keyword === "required");
  if (missing !== undefined) {
    const names = listOf(missing.params, "requiredProperties").map((name) => fieldName(missing.instancePath, name));
    return invalid(`${names.join(", ")} is missing in the ${where}`, names[0] ?? where);
  }
  const fault = mostTelling(faults);
  const field = fieldName(fault.instancePath);
  const given = quoted(at(value, fault.instancePath));
  const message = `${field === "" ? `the ${where}` : field} ${sentence(faults, fault)}; it is ${given}`;
  return invalid(message, field, given === "null" ? "NaN and Infinity become null in JSON" : undefined);
}

function unknownKey(fault: Fault, schema: TSchema, where: string): SandboxError {
  const keys = listOf(fault.params, "additionalProperties").map((key) => key.slice(0, QUOTED_LENGTH));
  const place = fault.instancePath === "" ? `the ${where}` : fieldName(fault.instancePath);
  const known = propertiesAt(schema, fault.instancePath);
  if (known === undefined) {
    return invalid(
      `${place} has a name that is not allowed: ${keys.map(quoted).join(", ")}`,
      fieldName(fault.instancePath),
    );
  }
  const message = `${place} has an unknown key: ${keys.map(quoted).join(", ")}`;
  return invalid(message, fieldName(fault.instancePath, keys[0]), `known keys: ${known.join(", ") || "none"}`);
}

/** Of the alternatives of a union, the one whose type was right tells the bound that was missed. */
function mostTelling(faults: readonly Fault[]): Fault {
  const specific = faults.find((fault) => !["type", "anyOf", "boolean", "const"].includes(fault.keyword));
  const fault = specific ?? faults[0];
  if (fault === undefined) throw new Error("a value failed a check without a fault");
  return fault;
}

function sentence(faults: readonly Fault[], fault: Fault): string {
  if (fault.keyword === "enum") return `must be one of ${listOf(fault.params, "allowedValues").join(", ")}`;
  if (fault.keyword !== "type") return fault.message;
  const types = faults.flatMap((other) =>
    other.keyword === "type" && other.instancePath === fault.instancePath && "type" in other.params
      ? String(other.params.type)
      : [],
  );
  return `must be ${[...new Set(types)].join(" or ")}`;
}

function invalid(message: string, field: string, hint?: string): SandboxError {
  return new SandboxError("InvalidArgument", message, { details: { field }, ...(hint === undefined ? {} : { hint }) });
}

function listOf(params: object, name: string): readonly string[] {
  const list = new Map<string, unknown>(Object.entries(params)).get(name);
  return Array.isArray(list) ? list.map(String) : [];
}

/** `/resources/memoryMiB` as people write it: `resources.memoryMiB`. */
function fieldName(pointer: string, ...more: readonly (string | undefined)[]): string {
  return [...steps(pointer), ...more.filter((name) => name !== undefined)].join(".");
}

function steps(pointer: string): readonly string[] {
  return pointer
    .split("/")
    .slice(1)
    .map((step) => step.replaceAll("~1", "/").replaceAll("~0", "~"));
}

function at(value: unknown, pointer: string): unknown {
  let found = value;
  for (const step of steps(pointer)) {
    if (typeof found !== "object" || found === null) return undefined;
    found = Object.hasOwn(found, step) ? (found as Record<string, unknown>)[step] : undefined;
  }
  return found;
}

/** The names a closed object takes; undefined for a map, whose names have a pattern. */
function propertiesAt(schema: TSchema, pointer: string): readonly string[] | undefined {
  let found: unknown = schema;
  for (const step of steps(pointer))
    found = at(found, `/properties/${step.replaceAll("~", "~0").replaceAll("/", "~1")}`);
  const properties = at(found, "/properties");
  return typeof properties === "object" && properties !== null ? Object.keys(properties) : undefined;
}

function quoted(value: unknown): string {
  const text = JSON.stringify(value) ?? "absent";
  return text.length > QUOTED_LENGTH ? `${text.slice(0, QUOTED_LENGTH)}…` : text;
}
