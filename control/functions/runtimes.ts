import { SandboxError } from "#core/errors.ts";
import type { FunctionLimits, FunctionRuntime } from "#core/functions.ts";
import { type ArtifactRecord, type Catalogue, SHARED_PROJECT } from "#images/catalogue.ts";
import { compose } from "#images/layers/compose.ts";
import type { ArtifactMaker } from "../artifacts.ts";
import { Manifests, type RuntimeManifest } from "./manifest.ts";

/** Where runtimes are, and what makes their bases. */
export interface RuntimesOptions {
  /** Those of later ones replace those of earlier ones. */
  readonly directories: readonly string[];
  readonly catalogue: Catalogue;
  readonly maker: ArtifactMaker;
}

/** A runtime as it is listed. */
export interface RuntimeSummary {
  readonly manifest: RuntimeManifest;
  readonly ready: boolean;
}

/** Who asks, and how long. */
export interface Asked {
  readonly project: string;
  readonly signal: AbortSignal;
  /** Hears the steps of a base that is made. */
  readonly progress?: ((line: string) => void) | undefined;
}

/** A base that is being made. */
interface Making {
  readonly done: Promise<void>;
  readonly listeners: Set<(line: string) => void>;
}

/** The runtimes of a control plane. Files are looked at anew each time: an operator adds and changes runtimes while the node runs. */
export class Runtimes {
  readonly #options: RuntimesOptions;
  readonly #manifests: Manifests;
  readonly #making = new Map<string, Making>();

  constructor(options: RuntimesOptions) {
    this.#options = options;
    this.#manifests = new Manifests(options.directories);
  }

  async list(project: string): Promise<readonly RuntimeSummary[]> {
    const manifests = this.#manifests.names.map((name) => this.#manifests.get(name));
    return Promise.all(manifests.map((manifest) => this.#summary(project, manifest)));
  }

  /**
   * What an edge needs to know, and the limits that a call has unless it says otherwise. A base that is missing is made, once for all
   * who ask. Rejects with `NotFound` for an unknown name or part.
   */
  async resolve(
    name: string,
    asked: Asked,
  ): Promise<{ readonly runtime: FunctionRuntime; readonly limits: FunctionLimits }> {
    const manifest = this.#manifests.get(name);
    const base = (await this.#base(asked.project, manifest)) ?? (await this.#make(manifest, asked));
    const toolkits = manifest.toolkits.map((toolkit) => this.#options.catalogue.resolve(asked.project, toolkit));
    const { layers, config } = compose({ base, workspace: undefined, toolkits: await Promise.all(toolkits) });
    const { source, compile, run, limits } = manifest;
    const warm = manifest.warm && { kind: manifest.warm.kind, argv: manifest.warm.argv, script: manifest.warm.script };
    return { runtime: { name, layers, env: { ...config.env, ...manifest.env }, source, compile, run, warm }, limits };
  }

  /** Makes what the runtime lacks. */
  async prepare(name: string, asked: Asked): Promise<RuntimeSummary> {
    await this.resolve(name, asked);
    return this.#summary(asked.project, this.#manifests.get(name));
  }

  async #summary(project: string, manifest: RuntimeManifest): Promise<RuntimeSummary> {
    return { manifest, ready: (await this.#base(project, manifest)) !== undefined };
  }

  /** Undefined when there is none yet. */
  async #base(project: string, { base }: RuntimeManifest): Promise<ArtifactRecord | undefined> {
    try {
      return await this.#options.catalogue.resolve(project, base);
    } catch (error) {
      if (error instanceof SandboxError && error.kind === "NotFound") return undefined;
      throw error;
    }
  }

  /** Whoever asks first starts it; it goes on when that one leaves, because others will ask. */
  async #make(manifest: RuntimeManifest, { project, signal, progress }: Asked): Promise<ArtifactRecord> {
    const { base, debian } = manifest;
    if (debian === undefined) {
      throw new SandboxError(
        "NotFound",
        `the runtime ${manifest.name} needs the base ${base}, which is not in the catalogue`,
        {
          hint: `import or build ${base}, or name packages under "debian" in the runtime's manifest`,
        },
      );
    }
    const making = this.#making.get(base) ?? this.#start(base, debian);
    if (progress !== undefined) making.listeners.add(progress);
    try {
      await untilAborted(making.done, signal);
    } finally {
      if (progress !== undefined) making.listeners.delete(progress);
    }
    return this.#options.catalogue.resolve(project, base);
  }

  #start(base: string, include: readonly string[]): Making {
    const { catalogue, maker } = this.#options;
    const listeners = new Set<(line: string) => void>();
    const progress = (line: string) => {
      for (const listener of listeners) listener(line);
    };
    const request = {
      kind: "base",
      suite: undefined,
      include,
      desktop: false,
      signal: new AbortController().signal,
      progress,
    } as const;
    const done = maker
      .buildDebian(request)
      .then((made) => catalogue.put(SHARED_PROJECT, base, made))
      .then(() => undefined)
      .finally(() => this.#making.delete(base));
    const making = { done, listeners };
    this.#making.set(base, making);
    return making;
  }
}

/** A call that cannot wait as long is told what it waits for. */
function untilAborted(work: Promise<void>, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const leave = () => {
      const message = "the runtime's base is still being made, which takes a minute or more the first time";
      reject(
        new SandboxError("Unavailable", message, {
          hint: "prepare the runtime once (dsec fn prepare), or try again",
          cause: signal.reason,
        }),
      );
    };
    if (signal.aborted) leave();
    else signal.addEventListener("abort", leave, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener("abort", leave));
  });
}
