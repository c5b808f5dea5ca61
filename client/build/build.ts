import { type ArtifactView, DsecError, type TreeKind } from "#sdk";
import { type Dockerfile, type Instruction, parseDockerfile } from "./dockerfile.ts";
import { BUILD_CACHE, type BuilderOptions, StageBuilder, type StageResult } from "./stage-builder.ts";
import { type Origin, planStages } from "./stages.ts";
import { argument, type Settings } from "./state.ts";

/** What to build, with what, and who listens. */
export interface BuildOptions extends BuilderOptions {
  /** Text of the Dockerfile. */
  readonly dockerfile: string;
  readonly buildArgs: Readonly<Record<string, string>>;
  /** A workspace or toolkit has what the steps changed, and nothing of what the last stage began with. */
  readonly kind: TreeKind;
}

/**
 * Builds an image from a Dockerfile: each RUN, COPY and ADD in a sandbox of its own, on what the steps before left. What a step leaves is
 * kept as a snapshot by its key, and taken from there the next time. The name moves to the image after the last step. A step that fails is
 * `FailedPrecondition` with its line, and nothing of it is left.
 */
export async function buildImage(options: BuildOptions): Promise<ArtifactView> {
  const file = parseDockerfile(options.dockerfile);
  checkArguments(file, options.buildArgs);
  const settings = settingsOf(file, options.buildArgs);
  const stages = planStages(file, settings);
  const done = new Map<number, StageResult>();
  const begin = async (origin: Origin): Promise<StageResult> => {
    if (origin.type === "artifact") return beginningOf(await infoOf(options, origin.reference));
    const found = done.get(origin.index);
    if (found === undefined) throw new Error("a stage is built after those that it needs");
    return found;
  };
  // What is missing shows before anything runs.
  for (const { from, copies } of stages) {
    for (const origin of [from, ...copies.values()]) {
      if (origin.type === "artifact") await infoOf(options, origin.reference);
    }
  }
  let builder: StageBuilder | undefined;
  for (const plan of stages) {
    builder = new StageBuilder(options, settings, await begin(plan.from));
    done.set(plan.index, await builder.build(plan, begin));
  }
  const last = done.get(file.stages.length - 1);
  if (builder === undefined || last === undefined) throw new Error("a parsed file has a stage");
  return await publish(options, builder, last);
}

function infoOf({ client, signal }: BuildOptions, reference: string): Promise<ArtifactView> {
  return client.artifacts.info(reference, { signal });
}

function beginningOf(root: ArtifactView): StageResult {
  const { env, user, workdir = "/", image = {} } = root.config;
  // By digest: a tag that moves meanwhile must not mix two bases.
  const base = `${root.name}@${root.digest}`;
  return { base, key: root.digest, state: { env, user, workdir, image, args: {} }, root };
}

/** Arguments before the first FROM. */
function settingsOf({ globals: instructions, escapeMark }: Dockerfile, buildArgs: Settings["buildArgs"]): Settings {
  let globals: Record<string, string> = {};
  for (const each of instructions) {
    globals = { ...globals, ...argument(each, globals, { buildArgs, globals, escapeMark }) };
  }
  return { buildArgs, globals, escapeMark };
}

/** A misspelt argument would silently have no effect. */
function checkArguments({ globals, stages }: Dockerfile, buildArgs: Readonly<Record<string, string>>): void {
  const all: readonly Instruction[] = [...globals, ...stages.flatMap(({ instructions }) => instructions)];
  const declared = all.filter(({ name }) => name === "ARG").map(({ text }) => text.split("=")[0]);
  for (const name of Object.keys(buildArgs)) {
    if (declared.includes(name)) continue;
    throw new DsecError("InvalidArgument", `the Dockerfile has no ARG ${name}`, { hint: "check --build-arg" });
  }
}

/** Gives the result of the last stage its name. */
async function publish(options: BuildOptions, builder: StageBuilder, last: StageResult): Promise<ArtifactView> {
  const { client, kind, name, onProgress, signal } = options;
  onProgress(`publishing ${name}`);
  const keep = ["credentials", "history"] as const;
  const pack = (as: string, config: ArtifactView["config"]) =>
    builder.inSandbox(
      async (sandbox) => (await sandbox.packDiff({ name: as, config, keep: [...keep], signal })).artifact,
    );
  const { env, user, workdir, image } = last.state;
  const config = { env, workdir, image, ...(user === undefined ? {} : { user }) };
  if (kind === "snapshot") return await pack(name, config);
  const whole = await pack(`${BUILD_CACHE}/${last.key.replace("sha256:", "").slice(0, 40)}.whole`, config);
  const source = `${whole.name}@${whole.digest}`;
  if (kind === "base") return await client.artifacts.derive(source, { target: name, kind, config }, { signal });
  const over = `${last.root.name}@${last.root.digest}`;
  return await client.artifacts.derive(source, { target: name, kind, over, config: ownConfig(last) }, { signal });
}

/** What a part says that joins any base: only what the file itself has set. */
function ownConfig({ state, root }: StageResult): ArtifactView["config"] {
  const env = Object.fromEntries(Object.entries(state.env).filter(([name, value]) => root.config.env[name] !== value));
  return {
    env,
    ...(state.user === undefined || state.user === root.config.user ? {} : { user: state.user }),
    ...(state.workdir === (root.config.workdir ?? "/") ? {} : { workdir: state.workdir }),
    image: state.image,
  };
}
