import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { type Static, Type } from "typebox";
import { hasCode, SandboxError } from "#core/errors.ts";
import type { FunctionLimits, FunctionRuntime, FunctionWarmth } from "#core/functions.ts";
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
export interface RuntimeManifest extends Omit<FunctionRuntime, "layers" | "env" | "warm"> {
  readonly base: string;
  readonly debian: readonly string[] | undefined;
  readonly toolkits: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly limits: FunctionLimits;
  /** `file`: what the script was read from. */
  readonly warm: (FunctionWarmth & { readonly file: string }) | undefined;
}

const DEFAULT_LIMITS: FunctionLimits = {
  compileMs: 10_000,
  runMs: 10_000,
  memoryMiB: 256,
  outputBytes: 1024 * 1024,
  pids: 64,
};
const COMPILER_MIB = 512;

/** What was read of a folder, and of which state of its files. */
interface Known {
  readonly stamp: string;
  readonly manifest: RuntimeManifest;
}

/** The runtimes of directories, one in each folder with a manifest; those of later directories replace those of earlier ones. */
export class Manifests {
  readonly #directories: readonly string[];
  /** By folder. Every call asks for one: it looks whether the files changed, and reads them only then. */
  readonly #known = new Map<string, Known>();

  constructor(directories: readonly string[]) {
    this.#directories = directories;
  }

  /** Sorted. */
  get names(): readonly string[] {
    return [...new Set(this.#directories.flatMap(foldersOf))].sort();
  }

  /** As its files are now. Throws `NotFound` for an unknown name, `InvalidArgument` for a manifest that cannot be read. */
  get(name: string): RuntimeManifest {
    const folders = NAME.test(name) ? this.#directories.map((directory) => join(directory, name)) : [];
    const folder = folders.findLast((each) => stampOf(each) !== undefined);
    if (folder === undefined) {
      throw new SandboxError("NotFound", `no runtime ${name}`, { hint: `there are: ${this.names.join(", ")}` });
    }
    const known = this.#known.get(folder);
    if (known !== undefined && known.stamp === stampsOf(folder, known.manifest)) return known.manifest;
    const manifest = read(folder, name);
    this.#known.set(folder, { stamp: stampsOf(folder, manifest), manifest });
    return manifest;
  }
}

/** Another one whenever the file or folder was written to or replaced; undefined when there is none. */
function stampOf(path: string): string | undefined {
  const status = statSync(path, { bigint: true, throwIfNoEntry: false });
  return status === undefined ? undefined : `${status.ino} ${status.size} ${status.mtimeNs}`;
}

function stampsOf(folder: string, { warm }: RuntimeManifest): string {
  return [MANIFEST, ...(warm === undefined ? [] : [warm.file])].map((file) => stampOf(join(folder, file))).join();
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

function read(folder: string, name: string): RuntimeManifest {
  const file = join(folder, MANIFEST);
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
        warm === undefined
          ? undefined
          : { ...warm, file: warm.script, script: readFileSync(join(folder, warm.script), "utf8") },
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
