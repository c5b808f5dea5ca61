import { createHash } from "node:crypto";
import { type ArtifactView, type Client, type CreateSandbox, DsecError, NotFoundError, type Sandbox } from "#sdk";
import type { BuildContext } from "./context.ts";
import { type CopyStep, copyInto, copyStep } from "./copy.ts";
import { copyFrom } from "./copy-from.ts";
import type { Instruction } from "./dockerfile.ts";
import { refused } from "./refused.ts";
import { seeThrough } from "./see-through.ts";
import type { Origin, StagePlan } from "./stages.ts";
import { type BuildState, changed, type Settings } from "./state.ts";

/** What a build works with. */
export interface BuilderOptions {
  readonly client: Client;
  readonly context: BuildContext;
  /** What the image is called once it is whole. */
  readonly name: string;
  /** How the sandboxes are made in which steps run. */
  readonly sandbox: Omit<CreateSandbox, "base">;
  /** True: no step is taken from an earlier build. */
  readonly noCache: boolean;
  readonly onProgress: (line: string) => void;
  /** Hears what steps write. */
  readonly onOutput: (bytes: Uint8Array) => void;
  readonly signal: AbortSignal;
}

/** Where a stage has come to. */
export interface StageResult {
  /** What the next step begins with. */
  readonly base: string;
  /** Names everything that was done so far. */
  readonly key: string;
  readonly state: BuildState;
  /** The artifact of the catalogue that it all began with. */
  readonly root: ArtifactView;
}

/** What changes files. */
type Step =
  | { readonly type: "run"; readonly words: readonly string[] }
  | { readonly type: "copy"; readonly copy: CopyStep; readonly digest: string; readonly from: StageResult | undefined };

/** A change of what keys are made of. */
const KEY_VERSION = 2;
/** Catalogue names of what steps left; a node forgets those that no build has used for a while. */
export const BUILD_CACHE = "build-cache";
/** A builder that dies leaves its sandbox: the node removes it after so long. */
const IDLE_MS = 10 * 60_000;
const ROOT = "0";

/** Takes the steps of a stage, each from an earlier build or in a sandbox of its own. */
export class StageBuilder {
  readonly #options: BuilderOptions;
  readonly #settings: Settings;
  #at: StageResult;

  constructor(options: BuilderOptions, settings: Settings, begin: StageResult) {
    this.#options = options;
    this.#settings = settings;
    this.#at = begin;
  }

  /** `resolve` finds what a `COPY --from` copies from. */
  async build(
    { stage, index, copies }: StagePlan,
    resolve: (origin: Origin) => Promise<StageResult>,
  ): Promise<StageResult> {
    const title = stage.name ?? (index === 0 ? "" : String(index));
    for (const [number, each] of stage.instructions.entries()) {
      this.#options.signal.throwIfAborted();
      const place = `${title}${title === "" ? "" : " "}${number + 1}/${stage.instructions.length}`;
      this.#options.onProgress(`[${place}] ${each.name} ${each.text}`);
      const origin = copies.get(each);
      const step = await this.#stepOf(each, origin && (await resolve(origin)));
      if (step === undefined) this.#at = { ...this.#at, state: changed(this.#at.state, each, this.#settings) };
      else await this.#take(each, step);
    }
    return this.#at;
  }

  /** Runs `work` in a sandbox on what there is so far, with the working directory made; it is gone afterwards. */
  async inSandbox<T>(work: (sandbox: Sandbox) => Promise<T>): Promise<T> {
    const { signal } = this.#options;
    const { workdir } = this.#at.state;
    await using sandbox = await this.#create(this.#at.base);
    if (workdir !== "/") await sandbox.files.mkdir(workdir, { parents: true, mode: 0o755, user: ROOT, signal });
    return await work(sandbox);
  }

  async #stepOf(instruction: Instruction, from: StageResult | undefined): Promise<Step | undefined> {
    if (instruction.name === "RUN") return { type: "run", words: runWords(instruction) };
    if (instruction.name !== "COPY" && instruction.name !== "ADD") return undefined;
    const { context } = this.#options;
    const copy = copyStep(instruction, this.#at.state, context, this.#settings);
    const digest = from === undefined ? await context.digest(copy.entries) : JSON.stringify([from.key, copy.sources]);
    return { type: "copy", copy, digest, from };
  }

  /** From the cache, or in a sandbox. */
  async #take(instruction: Instruction, step: Step): Promise<void> {
    const { client, noCache, onProgress, signal } = this.#options;
    const key = this.#keyOf(step);
    const name = `${BUILD_CACHE}/${key.slice(0, 40)}`;
    const kept = noCache ? undefined : await stillThere(client, name, signal);
    if (kept !== undefined) onProgress("  from an earlier build");
    const made =
      kept ??
      (await this.inSandbox(async (sandbox) => {
        await this.#act(sandbox, instruction, step);
        return (await sandbox.packDiff({ name, keep: ["credentials", "history"], signal })).artifact;
      }));
    // By digest: the tag may be forgotten or made anew while this build goes on.
    this.#at = { ...this.#at, base: `${made.name}@${made.digest}`, key };
  }

  async #act(sandbox: Sandbox, { line, name, text }: Instruction, step: Step): Promise<void> {
    const { context, onOutput, signal } = this.#options;
    if (step.type === "copy") return await this.#copy(sandbox, step, context);
    const { args, env, user = ROOT, workdir } = this.#at.state;
    const command = await sandbox.start(step.words, { env: { ...args, ...env }, user, cwd: workdir, signal });
    const { status } = await seeThrough(command, onOutput, signal);
    if (status.cause === "exited" && status.code === 0) return;
    const how = status.signal === undefined ? `exit status ${status.code}` : `signal ${status.signal}`;
    throw new DsecError("FailedPrecondition", `line ${line}: ${name} ${text.slice(0, 200)} ended with ${how}`, {
      hint: "what it wrote is above",
      details: { line, cause: status.cause, ...(status.code === undefined ? {} : { code: status.code }) },
    });
  }

  async #copy(sandbox: Sandbox, { copy, from }: Extract<Step, { type: "copy" }>, context: BuildContext): Promise<void> {
    const { signal } = this.#options;
    if (from === undefined) return await copyInto(sandbox, copy, context, signal);
    await using source = await this.#create(from.base);
    await copyFrom(source, sandbox, copy, signal);
  }

  #create(base: string): Promise<Sandbox> {
    const { client, name, sandbox: spec, signal } = this.#options;
    const labels = { ...spec.labels, "dsec.build": name.slice(0, 200) };
    const wanted = { idleTimeoutMs: IDLE_MS, ...spec, base, user: ROOT, workdir: "/", labels };
    return client.sandboxes.create(wanted, { signal });
  }

  #keyOf(step: Step): string {
    const { args, env, user, workdir } = this.#at.state;
    const what =
      step.type === "run"
        ? { words: step.words, args, env, user }
        : { digest: step.digest, target: step.copy.target, owner: step.copy.owner, mode: step.copy.mode };
    const parts = [KEY_VERSION, this.#at.key, step.type, workdir, what];
    return createHash("sha256").update(JSON.stringify(parts)).digest("hex");
  }
}

/** A script of its own, or a line with what its commands read. */
function runWords({ line, text, words, documents }: Instruction): readonly string[] {
  if (words !== undefined) return words;
  const [first] = documents;
  if (first === undefined || !/^<<-?(["']?)[\w.-]+\1$/.test(text)) {
    return ["/bin/sh", "-c", [text, ...documents.map((each) => `${each.text}${each.name}`)].join("\n")];
  }
  if (first.text.startsWith("#!")) {
    throw refused(line, "a here-document with #! is not supported: name its program before <<");
  }
  return ["/bin/sh", "-c", first.text];
}

/** Says that it was used, too: what was not for long is forgotten. */
async function stillThere(client: Client, name: string, signal: AbortSignal): Promise<ArtifactView | undefined> {
  try {
    return await client.artifacts.tag(name, { target: name }, { signal });
  } catch (error) {
    if (error instanceof NotFoundError) return undefined;
    throw error;
  }
}
