import { SandboxError } from "#core/errors.ts";
import type { ArtifactKind, ImageConfig, LayerDigest } from "#core/sandbox.ts";
import type { ArtifactRecord } from "../catalogue.ts";
import { checkStack, withoutRepeats } from "./stack.ts";

type Part = Pick<ArtifactRecord, "name" | "tag" | "kind" | "layers" | "config">;

/** The parts that an environment is put together from. */
export interface Composition {
  /** A base, or a snapshot: that has all the parts of the sandbox it was made of. Or a vm-image, which is alone. */
  readonly base: Part;
  readonly workspace?: Part | undefined;
  /** Each over the ones before it. */
  readonly toolkits: readonly Part[];
}

/** An environment ready to be mounted. */
export interface Composed {
  /** Lowest first: the base's, then the workspace's, then each toolkit's; every layer once. */
  readonly layers: readonly LayerDigest[];
  /** Later parts override the variables of earlier ones, and their user and working directory where they name one. */
  readonly config: ImageConfig;
}

/** Stacks the parts of an environment. `InvalidArgument` for a part of the wrong kind or more layers than an overlay takes. */
export function compose({ base, workspace, toolkits }: Composition): Composed {
  if (base.kind !== "snapshot" && base.kind !== "vm-image") expectKind(base, "base");
  if (workspace !== undefined) expectKind(workspace, "workspace");
  for (const toolkit of toolkits) expectKind(toolkit, "toolkit");
  if (base.kind === "vm-image" && (workspace !== undefined || toolkits.length > 0)) {
    throw new SandboxError("InvalidArgument", "a full VM takes no workspace and no toolkits", {
      hint: "put what it needs into its image",
    });
  }
  const parts = [base, ...(workspace === undefined ? [] : [workspace]), ...toolkits];
  const layers = withoutRepeats(parts.flatMap((part) => part.layers));
  checkStack(layers.length, "the environment");
  return { layers, config: parts.map((part) => part.config).reduce(merge) };
}

function merge(lower: ImageConfig, upper: ImageConfig): ImageConfig {
  const image = upper.image ?? lower.image;
  return {
    env: { ...lower.env, ...upper.env },
    user: upper.user ?? lower.user,
    workdir: upper.workdir ?? lower.workdir,
    ...(image === undefined ? {} : { image }),
    ...(lower.computer === undefined ? {} : { computer: lower.computer }),
  };
}

function expectKind(part: Part, kind: ArtifactKind): void {
  if (part.kind === kind) return;
  throw new SandboxError("InvalidArgument", `${part.name}:${part.tag} is a ${part.kind}, not a ${kind}`, {
    hint: `give it as the ${part.kind}, or import it again with --kind ${kind}`,
    details: { artifact: `${part.name}:${part.tag}`, kind: part.kind, wanted: kind },
  });
}
