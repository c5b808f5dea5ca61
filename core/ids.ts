import { randomBytes } from "node:crypto";
import { SandboxError } from "#core/errors.ts";

/** `s<edge>-<random>`: a lower-case DNS label that names the owning edge, so that any apiserver routes it. */
export type SandboxId = string & { readonly __brand: "SandboxId" };
/** `f<edge>-<random>`: a call of a function whose result waits on that edge. */
export type InvocationId = string & { readonly __brand: "InvocationId" };
/** `c<random>`, unique within its sandbox. */
export type CommandId = string & { readonly __brand: "CommandId" };
/** A short lower-case label, at most 16 characters: it becomes part of every sandbox id of that edge. */
export type EdgeId = string & { readonly __brand: "EdgeId" };

const EDGE = /^[a-z0-9]{1,16}$/;
const SANDBOX = /^s([a-z0-9]{1,16})-([a-z0-9]{16})$/;
const INVOCATION = /^f([a-z0-9]{1,16})-([a-z0-9]{16})$/;
const COMMAND = /^c[a-z0-9]{12}$/;

/** Throws `InvalidArgument` for text that is no edge id. */
export function parseEdgeId(text: string): EdgeId {
  if (!EDGE.test(text)) {
    throw new SandboxError("InvalidArgument", `edge id ${JSON.stringify(text)} is not 1 to 16 of a-z and 0-9`);
  }
  return text as EdgeId;
}

/** A new id, with 80 random bits, of a sandbox that `edge` owns. */
export function newSandboxId(edge: EdgeId): SandboxId {
  return `s${edge}-${randomLabel(16)}` as SandboxId;
}

/** The id, of a sandbox that `edge` owns, that always stands for the same 16 bytes or more. */
export function sandboxIdOf(edge: EdgeId, bytes: Uint8Array): SandboxId {
  return `s${edge}-${label(bytes.subarray(0, 16))}` as SandboxId;
}

/** A new id, with 80 random bits, of a call that `edge` carries out. */
export function newInvocationId(edge: EdgeId): InvocationId {
  return `f${edge}-${randomLabel(16)}` as InvocationId;
}

/** Throws `NotFound` for text that cannot be an id of a call. */
export function parseInvocationId(text: string): InvocationId {
  if (INVOCATION.test(text)) return text as InvocationId;
  throw new SandboxError("NotFound", `no call ${JSON.stringify(text.slice(0, 80))}`);
}

/** A new id, with 60 random bits. */
export function newCommandId(): CommandId {
  return `c${randomLabel(12)}` as CommandId;
}

/** Throws `NotFound` for text that cannot be a sandbox id: nothing can exist under it. */
export function parseSandboxId(text: string): SandboxId {
  if (!SANDBOX.test(text)) {
    throw new SandboxError("NotFound", `no sandbox ${JSON.stringify(text.slice(0, 80))}`, {
      hint: "dsec ls shows the ids",
    });
  }
  return text as SandboxId;
}

/** Throws `NotFound` for text that cannot be a command id. */
export function parseCommandId(text: string): CommandId {
  if (!COMMAND.test(text)) {
    throw new SandboxError("NotFound", `no command ${JSON.stringify(text.slice(0, 80))}`, {
      hint: "dsec commands ID shows those of a sandbox",
    });
  }
  return text as CommandId;
}

/** The edge that owns a sandbox, or carries out a call. */
export function edgeOf(id: SandboxId | InvocationId): EdgeId {
  return id.slice(1, id.indexOf("-")) as EdgeId;
}

/** Base 32 without padding: 5 random bits a character. */
function label(bytes: Uint8Array): string {
  const alphabet = "abcdefghijklmnopqrstuvwxyz234567";
  return Array.from(bytes, (byte) => alphabet[byte & 31]).join("");
}

/** Random bytes, each given once. Asking the kernel for a few costs as much as asking it for many. */
class RandomBlock {
  #left: Uint8Array = new Uint8Array(0);

  take(length: number): Uint8Array {
    if (this.#left.length < length) this.#left = randomBytes(4_096);
    const taken = this.#left.subarray(0, length);
    this.#left = this.#left.subarray(length);
    return taken;
  }
}

const RANDOM = new RandomBlock();

function randomLabel(length: number): string {
  return label(RANDOM.take(length));
}
