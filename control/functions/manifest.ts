import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { type Static, Type } from "typebox";
import { hasCode, SandboxError } from "#core/errors.ts";
import type { FunctionLimits, FunctionRuntime } from "#core/functions.ts";
import { parseJson } from "../apiserver/json.ts";
import { validator } from "../apiserver/validate.ts";

const NAME = /^[a-z0-9][a-z0-9+._-]{0,63}$/;
const MANIFEST = "runtime.json";

const closed = <Properties extends Parameters<typeof Type.Object>[0]>(properties: Properties) =>
  Type.Object(properties, { additionalProperties: false });
const Words = Type.Array(Type.String({ minLength: 1 }), { minItems: 1 });

/** The form of `runtime.json`; `docs/using/functions.md` explains each key. */
const Manifest = closed({
  base: Type.String({ minLength: 1 }),
  /** Packages of a Debian base that is made under that name when there is none. */
  debian: Type.Optional(Type.Array(Type.String({ minLength: 1 }))),
  toolkits: Type.Optional(Type.Array(Type.String({ minLength: 1 }))),
  env: Type.Optional(Type.Record(Type.String(), Type.String())),
  source: Type.String({ minLength: 1 }),
  compile: Type.Optional(
    closed({
      argv: Words,
      outputs: Words,
      memoryMiB: Type.Optional(Type.Integer({ minimum: 8 })),
    }),
  ),
  run: Words,
  warm: Type.Optional(
    closed({
      kind: Type.Union([Type.Literal("fork"), Type.Literal("start")]),
      argv: Words,
      script: Type.String({ minLength: 1 }),
    }),
  ),
  limits: Type.Optional(
    closed({
      compileMs: Type.Optional(Type.Integer({ minimum: 1 })),
      runMs: Type.Optional(Type.Integer({ minimum: 1 })),
      memoryMiB: Type.Optional(Type.Integer({ minimum: 8 })),
      outputBytes: Type.Optional(Type.Integer({ minimum: 0 })),
      pids: Type.Optional(Type.Integer({ minimum: 1 })),
    }),
  ),
});

/** A runtime as its directory has it: references are names, not layers. */
export interface RuntimeManifest extends Omit<FunctionRuntime, "layers" | "env"> {
  readonly base: string;
  readonly debian: readonly string[] | undefined;
  readonly toolkits: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly limits: FunctionLimits;
}

const DEFAULT_LIMITS: FunctionLimits = {
  compileMs: 10_000,
  runMs: 10_000,
  memoryMiB: 256,
  outputBytes: 1024 * 1024,
  pids: 64,
};
const COMPILER_MIB = 512;

/** Every runtime of these directories, one in each folder with a manifest; those of later ones replace those of earlier ones. */
export function readRuntimes(directories: readonly string[]): ReadonlyMap<string, RuntimeManifest> {
  return new Map(directories.flatMap((directory) => foldersOf(directory).map((name) => [name, read(directory, name)])));
}

function foldersOf(directory: string): readonly string[] {
  try {
    const folders = readdirSync(directory, { withFileTypes: true }).filter((entry) => entry.isDirectory());
    return folders.map(({ name }) => name).filter((name) => NAME.test(name));
  } catch (error) {
    if (hasCode(error, "ENOENT")) return [];
    throw error;
  }
}

const check = validator(Manifest, MANIFEST);

function read(directory: string, name: string): RuntimeManifest {
  const file = join(directory, name, MANIFEST);
  try {
    const manifest = check(parseJson(readFileSync(file))) as Static<typeof Manifest>;
    const { compile, warm } = manifest;
    return {
      name,
      base: manifest.base,
      debian: manifest.debian,
      toolkits: manifest.toolkits ?? [],
      env: manifest.env ?? {},
      source: manifest.source,
      compile: compile === undefined ? undefined : { memoryMiB: COMPILER_MIB, ...compile },
      run: manifest.run,
      warm:
        warm === undefined ? undefined : { ...warm, script: readFileSync(join(directory, name, warm.script), "utf8") },
      limits: { ...DEFAULT_LIMITS, ...manifest.limits },
    };
  } catch (error) {
    if (!(error instanceof SandboxError) && !hasCode(error, "ENOENT", "EACCES", "EISDIR")) throw error;
    const why = error instanceof Error ? error.message : String(error);
    throw new SandboxError("InvalidArgument", `the runtime ${name} cannot be read: ${why}`, {
      hint: `mend ${file}, or take its folder away`,
      cause: error,
    });
  }
}
