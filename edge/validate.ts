import { SandboxError } from "#core/errors.ts";
import { type EdgeId, edgeOf, parseSandboxId } from "#core/ids.ts";
import type { CommandSpec, Lifetime, SandboxSpec, SessionPart, TerminalSize } from "#core/sandbox.ts";

/** The kernel takes about two megabytes of arguments and environment; what is longer need not reach the agent. */
const ARGUMENTS_LIMIT_BYTES = 2 * 1024 * 1024;
const LAYERS_LIMIT = 64;
const KEY_LIMIT = 256;
const SESSION_NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;
/** What the agent takes. */
const LINE_LIMIT_BYTES = 1024 * 1024;
/** The kernel's own. */
const TERMINAL_LIMIT = 65_535;

/** Throws `InvalidArgument`, naming the field, for a spec that no node could run. The node's own limits are admission's. */
export function validateSandbox(spec: SandboxSpec, edge: EdgeId): void {
  if (edgeOf(parseSandboxId(String(spec.id))) !== edge) refuse("id", `names another edge than ${edge}`);
  for (const field of ["project", "hostname", "user", "workdir"] as const) text(field, spec[field]);
  if (!spec.workdir.startsWith("/")) refuse("workdir", "must be absolute");
  if (!Array.isArray(spec.layers) || spec.layers.length > LAYERS_LIMIT) refuse("layers", "must be at most 64 digests");
  for (const layer of spec.layers) if (!/^sha256:[0-9a-f]{64}$/.test(layer)) refuse("layers", "must be sha256 digests");
  environment("env", spec.env);
  environment("config.env", spec.config.env);
  number("resources.cpus", spec.resources.cpus, { above: 0 });
  whole("resources.memoryMiB", spec.resources.memoryMiB, 1);
  whole("resources.swapMiB", spec.resources.swapMiB, 0);
  whole("resources.pids", spec.resources.pids, 1);
  if (spec.resources.diskMiB !== undefined) whole("resources.diskMiB", spec.resources.diskMiB, 1);
  for (const [name, limit] of Object.entries(spec.rlimits)) {
    whole(`rlimits.${name}.soft`, limit.soft, 0);
    whole(`rlimits.${name}.hard`, limit.hard, limit.soft);
  }
  validateLifetime(spec.lifetime);
}

/** Throws `InvalidArgument` for limits of zero or less: they would mean "at once" to one reader and "never" to another. */
export function validateLifetime(lifetime: Lifetime): void {
  for (const field of ["idleTimeoutMs", "maxLifetimeMs"] as const) {
    if (lifetime[field] !== undefined) number(field, lifetime[field], { above: 0 });
  }
}

/** Throws `InvalidArgument`, naming the field, for a command that no sandbox could run. */
export function validateCommand(spec: CommandSpec): void {
  if (!Array.isArray(spec.argv) || spec.argv.length === 0) refuse("argv", "must name a program");
  if (spec.session !== undefined) validateSessionPart(spec, spec.session);
  let bytes = environment("env", spec.env);
  for (const argument of spec.argv) bytes += argumentBytes(argument);
  if (bytes > ARGUMENTS_LIMIT_BYTES) refuse("argv", `and env are ${bytes} bytes, more than ${ARGUMENTS_LIMIT_BYTES}`);
  if (spec.cwd !== undefined && !text("cwd", spec.cwd).startsWith("/")) refuse("cwd", "must be absolute");
  if (spec.user !== undefined) text("user", spec.user);
  if (spec.stdin !== "none" && spec.stdin !== "pipe") refuse("stdin", "must be none or pipe");
  if (spec.terminal !== undefined) validateTerminal(spec.terminal);
  if (spec.timeLimitMs !== undefined) number("timeLimitMs", spec.timeLimitMs, { above: 0 });
  if (spec.waitFor !== "leader" && spec.waitFor !== "pipes") refuse("waitFor", "must be leader or pipes");
  if (spec.outputCapBytes !== undefined) whole("outputCapBytes", spec.outputCapBytes, 1);
  if (spec.idempotencyKey !== undefined && text("idempotencyKey", spec.idempotencyKey).length > KEY_LIMIT) {
    refuse("idempotencyKey", `must have at most ${KEY_LIMIT} characters`);
  }
}

/** A line runs in the directory, as the user and with the variables that its session has. */
function validateSessionPart({ argv, cwd, user, terminal, env }: CommandSpec, { name, role }: SessionPart): void {
  if (role !== "shell" && role !== "line") refuse("session.role", "must be shell or line");
  if (name !== "" && !SESSION_NAME.test(name)) refuse("session.name", "must be 1 to 64 of a-z, A-Z, 0-9, . _ and -");
  if (role === "shell") return;
  const [line] = argv;
  if (line === undefined || argv.length > 1) refuse("argv", "of a line is its text");
  if (Buffer.byteLength(line) > LINE_LIMIT_BYTES) refuse("line", `has more than ${LINE_LIMIT_BYTES} bytes`);
  if (cwd !== undefined || user !== undefined || terminal !== undefined || Object.keys(env).length > 0) {
    refuse("session", "has the directory, user and variables of its lines");
  }
}

/** Throws `InvalidArgument` for a size that no terminal has. */
export function validateTerminal({ rows, cols }: TerminalSize): void {
  for (const [field, count] of Object.entries({ "terminal.rows": rows, "terminal.cols": cols })) {
    whole(field, count, 1);
    if (count > TERMINAL_LIMIT) refuse(field, `must be at most ${TERMINAL_LIMIT}`);
  }
}

/** Throws `InvalidArgument`, naming the field, for a path that is not absolute or not a path. */
export function validatePath(path: Uint8Array, field = "path"): void {
  if (!(path instanceof Uint8Array) || path[0] !== 0x2f) refuse(field, "must be absolute");
  if (path.includes(0)) refuse(field, "must not contain NUL");
  if (path.length > 4095) refuse(field, "must have at most 4095 bytes");
}

function environment(field: string, env: Readonly<Record<string, string>>): number {
  let bytes = 0;
  for (const [name, value] of Object.entries(env)) {
    if (name === "" || name.includes("=")) refuse(field, `has the name ${JSON.stringify(name)}`);
    if (typeof value !== "string" || value.includes("\0") || name.includes("\0"))
      refuse(field, "must be text without NUL");
    bytes += name.length + Buffer.byteLength(value) + 2;
  }
  return bytes;
}

function argumentBytes(argument: string | Uint8Array): number {
  if (typeof argument === "string") {
    if (argument.includes("\0")) refuse("argv", "must not contain NUL");
    return Buffer.byteLength(argument) + 1;
  }
  if (!(argument instanceof Uint8Array)) refuse("argv", "must be text or bytes");
  if (argument.includes(0)) refuse("argv", "must not contain NUL");
  return argument.length + 1;
}

function text(field: string, value: string): string {
  if (typeof value !== "string" || value === "" || value.includes("\0")) refuse(field, "must be text");
  return value;
}

function number(field: string, value: number, bound: { readonly above: number }): void {
  if (typeof value === "number" && Number.isFinite(value) && value > bound.above) return;
  refuse(field, `must be a number above ${bound.above}`);
}

function whole(field: string, value: number, least: number): void {
  if (!Number.isSafeInteger(value) || value < least) refuse(field, `must be a whole number of at least ${least}`);
}

/** Throws the error for an argument that is not what it has to be. */
export function refuse(field: string, what: string): never {
  throw new SandboxError("InvalidArgument", `${field} ${what}`, { details: { field } });
}
