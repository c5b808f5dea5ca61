import { createHash } from "node:crypto";
import { type ArtifactView, type Client, type CreateSandbox, DsecError, NotFoundError, type Sandbox } from "#sdk";
import type { BuildContext } from "./context.ts";
import { type CopyStep, copyInto, copyStep } from "./copy.ts";
import { type Instruction, parseDockerfile, refused } from "./dockerfile.ts";
import { expandText } from "./expand.ts";
import { seeThrough } from "./see-through.ts";
import { argument, type BuildState, changed, type Settings, said } from "./state.ts";

/** What to build, with what, and who listens. */
export interface BuildOptions {
  readonly client: Client;
  /** Text of the Dockerfile. */
  readonly dockerfile: string;
  readonly context: BuildContext;
  /** What the image is called once it is whole. */
  readonly name: string;
  readonly buildArgs: Readonly<Record<string, string>>;
  /** How the sandboxes are made in which steps run. */
  readonly sandbox: Omit<CreateSandbox, "base">;
  /** True: no step is taken from an earlier build. */
  readonly noCache: boolean;
  readonly onProgress: (line: string) => void;
  /** Hears what steps write. */
  readonly onOutput: (bytes: Uint8Array) => void;
  readonly signal: AbortSignal;
}

/** What changes files. */
type Step =
  | { readonly type: "run"; readonly words: readonly string[] }
  | { readonly type: "copy"; readonly copy: CopyStep; readonly digest: string };

/** A change of what keys are made of. */
const KEY_VERSION = 1;
/** Catalogue names of what steps left. */
const CACHE = "build-cache";
/** A builder that dies leaves its sandbox: the node removes it after so long. */
const IDLE_MS = 10 * 60_000;
const ROOT = "0";

/**
 * Builds an image from a Dockerfile: each RUN, COPY and ADD in a sandbox of its own, on what the steps before left. What a step leaves is
 * kept as a snapshot by its key, and taken from there the next time. The name moves to the image after the last step. A step that fails is
 * `FailedPrecondition` with its line, and nothing of it is left.
 */
export async function buildImage(options: BuildOptions): Promise<ArtifactView> {
  const { instructions, escapeMark } = parseDockerfile(options.dockerfile);
  const settings = { buildArgs: options.buildArgs, escapeMark };
  checkArguments(instructions, options.buildArgs);
  const from = instructions.findIndex(({ name }) => name === "FROM");
  const base = await options.client.artifacts.info(baseOf(instructions.slice(0, from + 1), settings), {
    signal: options.signal,
  });
  return await new Builder(options, settings, base).build(instructions.slice(from + 1));
}

/** What FROM names, with the arguments before it. */
function baseOf(instructions: readonly Instruction[], settings: Settings): string {
  let args: Record<string, string> = {};
  for (const each of instructions) {
    if (each.name === "ARG") args = { ...args, ...argument(each, args, settings) };
    if (each.name !== "FROM") continue;
    const base = said(each.line, () => expandText(each.text, args, settings.escapeMark));
    if (/\s/.test(base)) throw refused(each.line, "FROM names one base, and no stage");
    if (base === "scratch") throw refused(each.line, "FROM scratch is not supported: name a base of dsec image ls");
    return base;
  }
  throw new Error("a parsed file has a FROM");
}

/** A misspelt argument would silently have no effect. */
function checkArguments(instructions: readonly Instruction[], buildArgs: Readonly<Record<string, string>>): void {
  const declared = instructions.filter(({ name }) => name === "ARG").map(({ text }) => text.split("=")[0]);
  for (const name of Object.keys(buildArgs)) {
    if (declared.includes(name)) continue;
    throw new DsecError("InvalidArgument", `the Dockerfile has no ARG ${name}`, { hint: "check --build-arg" });
  }
}

class Builder {
  readonly #options: BuildOptions;
  readonly #settings: Settings;
  #state: BuildState;
  /** What the next step begins with. */
  #base: string;
  #key: string;

  constructor(options: BuildOptions, settings: Settings, base: ArtifactView) {
    const { env, user, workdir = "/", image = {} } = base.config;
    this.#options = options;
    this.#settings = settings;
    this.#state = { env, user, workdir, image, args: {} };
    // By digest: a tag that moves meanwhile must not mix two bases.
    this.#base = `${base.name}@${base.digest}`;
    this.#key = base.digest;
  }

  async build(instructions: readonly Instruction[]): Promise<ArtifactView> {
    for (const [index, each] of instructions.entries()) {
      this.#options.signal.throwIfAborted();
      this.#options.onProgress(`[${index + 1}/${instructions.length}] ${each.name} ${each.text}`);
      const step = await this.#stepOf(each);
      if (step === undefined) this.#state = changed(this.#state, each, this.#settings);
      else await this.#take(each, step);
    }
    return await this.#publish();
  }

  async #stepOf(instruction: Instruction): Promise<Step | undefined> {
    const { name, text, words } = instruction;
    if (name === "RUN") return { type: "run", words: words ?? ["/bin/sh", "-c", text] };
    if (name !== "COPY" && name !== "ADD") return undefined;
    const copy = copyStep(instruction, this.#state, this.#options.context, this.#settings);
    return { type: "copy", copy, digest: await this.#options.context.digest(copy.entries) };
  }

  /** From the cache, or in a sandbox. */
  async #take(instruction: Instruction, step: Step): Promise<void> {
    const { client, noCache, onProgress, signal } = this.#options;
    this.#key = this.#keyOf(step);
    const name = `${CACHE}/${this.#key.slice(0, 40)}`;
    if (!noCache && (await isThere(client, name, signal))) onProgress("  from an earlier build");
    else {
      await this.#inSandbox(async (sandbox) => {
        await this.#act(sandbox, instruction, step);
        await sandbox.packDiff({ name, keep: ["credentials", "history"], signal });
      });
    }
    this.#base = name;
  }

  async #act(sandbox: Sandbox, { line, name, text }: Instruction, step: Step): Promise<void> {
    const { context, onOutput, signal } = this.#options;
    if (step.type === "copy") return await copyInto(sandbox, step.copy, context, signal);
    const { args, env, user = ROOT, workdir } = this.#state;
    const command = await sandbox.start(step.words, { env: { ...args, ...env }, user, cwd: workdir, signal });
    const { status } = await seeThrough(command, onOutput, signal);
    if (status.cause === "exited" && status.code === 0) return;
    const how = status.signal === undefined ? `exit status ${status.code}` : `signal ${status.signal}`;
    throw new DsecError("FailedPrecondition", `line ${line}: ${name} ${text.slice(0, 200)} ended with ${how}`, {
      hint: "what it wrote is above",
      details: { line, cause: status.cause, ...(status.code === undefined ? {} : { code: status.code }) },
    });
  }

  /** A sandbox on what there is so far, with the working directory made; gone afterwards. */
  async #inSandbox<T>(work: (sandbox: Sandbox) => Promise<T>): Promise<T> {
    const { client, name, sandbox: spec, signal } = this.#options;
    const labels = { ...spec.labels, "dsec.build": name.slice(0, 200) };
    await using sandbox = await client.sandboxes.create(
      { idleTimeoutMs: IDLE_MS, ...spec, base: this.#base, user: ROOT, workdir: "/", labels },
      { signal },
    );
    if (this.#state.workdir !== "/") {
      await sandbox.files.mkdir(this.#state.workdir, { parents: true, mode: 0o755, user: ROOT, signal });
    }
    return await work(sandbox);
  }

  async #publish(): Promise<ArtifactView> {
    const { name, onProgress, signal } = this.#options;
    const { env, user, workdir, image } = this.#state;
    onProgress(`publishing ${name}`);
    const config = { env, workdir, image, ...(user === undefined ? {} : { user }) };
    return await this.#inSandbox(async (sandbox) => {
      const keep = ["credentials", "history"] as const;
      return (await sandbox.packDiff({ name, config, keep: [...keep], signal })).artifact;
    });
  }

  #keyOf(step: Step): string {
    const { args, env, user, workdir } = this.#state;
    const what =
      step.type === "run"
        ? { words: step.words, args, env, user }
        : { digest: step.digest, target: step.copy.target, owner: step.copy.owner, mode: step.copy.mode };
    const parts = [KEY_VERSION, this.#key, step.type, workdir, what];
    return createHash("sha256").update(JSON.stringify(parts)).digest("hex");
  }
}

async function isThere(client: Client, name: string, signal: AbortSignal): Promise<boolean> {
  try {
    await client.artifacts.info(name, { signal });
    return true;
  } catch (error) {
    if (error instanceof NotFoundError) return false;
    throw error;
  }
}
