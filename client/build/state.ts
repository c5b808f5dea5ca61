import { posix } from "node:path";
import type { ArtifactView } from "#sdk";
import type { Instruction } from "./dockerfile.ts";
import { expandPairs, expandText, type Variables } from "./expand.ts";
import { refused } from "./refused.ts";

/** Notes of an image, as the file sets them. */
export type ImageNotes = NonNullable<ArtifactView["config"]["image"]>;

/** What instructions without files of their own have said so far. Made anew by each of them. */
export interface BuildState {
  readonly env: Readonly<Record<string, string>>;
  readonly user: string | undefined;
  readonly workdir: string;
  readonly image: ImageNotes;
  /** Declared by ARG since FROM, with their values. */
  readonly args: Readonly<Record<string, string>>;
}

/** What stays the same from line to line. */
export interface Settings {
  /** Values of `--build-arg`. */
  readonly buildArgs: Readonly<Record<string, string>>;
  /** Arguments of the file before its first FROM, for those that a stage declares without a default. */
  readonly globals: Readonly<Record<string, string>>;
  readonly escapeMark: string;
}

/** What `$NAME` stands for: the environment goes before the arguments. */
export function variablesOf({ args, env }: Pick<BuildState, "args" | "env">): Variables {
  return { ...args, ...env };
}

/** The state after an instruction that only changes it. Throws `InvalidArgument` with its line for a form that it does not have. */
export function changed(state: BuildState, instruction: Instruction, settings: Settings): BuildState {
  const { line, name, text, words } = instruction;
  const variables = variablesOf(state);
  const whole = () => said(line, () => expandText(text, variables, settings.escapeMark));
  switch (name) {
    case "ENV":
      return { ...state, env: { ...state.env, ...pairs(instruction, variables, settings) } };
    case "LABEL":
      return {
        ...state,
        image: { ...state.image, labels: { ...state.image.labels, ...pairs(instruction, variables, settings) } },
      };
    case "WORKDIR":
      return { ...state, workdir: posix.resolve(state.workdir, whole()) };
    case "USER":
      return { ...state, user: whole() };
    case "ARG":
      return { ...state, args: { ...state.args, ...argument(instruction, variables, settings) } };
    case "CMD":
      return { ...state, image: { ...state.image, command: [...(words ?? ["/bin/sh", "-c", text])] } };
    case "ENTRYPOINT":
      return { ...state, image: { ...state.image, entrypoint: [...(words ?? ["/bin/sh", "-c", text])] } };
    default:
      throw new Error(`${name} does more than change the state`);
  }
}

/** The name and value that an ARG declares; one without a value is declared and empty. */
export function argument(
  instruction: Instruction,
  variables: Variables,
  { buildArgs, globals, escapeMark }: Settings,
): Record<string, string> {
  const [, name, fallback] = /^([A-Za-z_]\w*)(?:=([\s\S]*))?$/.exec(instruction.text) ?? [];
  if (name === undefined) throw refused(instruction.line, "ARG takes one NAME or NAME=DEFAULT");
  const value = said(instruction.line, () => expandText(fallback ?? "", variables, escapeMark));
  return { [name]: buildArgs[name] ?? (fallback === undefined ? (globals[name] ?? value) : value) };
}

/** Runs what reads a line, and says which one when it cannot be read. */
export function said<T>(line: number, action: () => T): T {
  try {
    return action();
  } catch (error) {
    throw refused(line, error instanceof Error ? error.message : String(error));
  }
}

function pairs({ line, text }: Instruction, variables: Variables, { escapeMark }: Settings): Record<string, string> {
  return Object.fromEntries(said(line, () => expandPairs(text, variables, escapeMark)));
}
