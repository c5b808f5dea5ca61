import { abortable } from "#core/concurrency/abort.ts";
import { SandboxError } from "#core/errors.ts";
import type { GuestLink } from "#core/guest.ts";
import type { InputEvent, StdinWrite } from "#core/node.ts";
import type { LiveCommand } from "#edge/commands/command.ts";
import { Interruption } from "#edge/waiting/interruption.ts";

/** Bytes given to the agent at once. */
const PIECE_BYTES = 64 * 1024;

interface Feeding {
  readonly signal: AbortSignal;
  readonly stop: Interruption;
  agent(): Promise<GuestLink>;
}

/**
 * Feeds a command's input from an offset on; what it took before is skipped. Resolves with the offset that comes next. Throws
 * `FailedPrecondition` when the command ends first or has no input, `InvalidArgument` for a gap.
 */
export async function writeStdin(
  command: LiveCommand | undefined,
  input: StdinWrite,
  options: { readonly signal: AbortSignal; agent(): Promise<GuestLink> },
): Promise<{ readonly offset: number }> {
  requireInput(command);
  const taken = command.stdinTaken ?? input.offset;
  command.input.check(input.writer, input.offset, taken);
  if (!Number.isSafeInteger(input.offset) || input.offset < 0 || input.offset > taken) {
    throw new SandboxError("InvalidArgument", `input at ${input.offset} would leave a gap after ${taken}`, {
      details: { offset: taken },
    });
  }
  const stop = new Interruption();
  const onAbort = () => stop.fire(options.signal.reason);
  options.signal.addEventListener("abort", onAbort, { once: true });
  // A command that ends takes nothing any more, and the agent says nothing about its input then. What it said just before the
  // end is on its way through promises: bytes that were taken are not to be called lost.
  void command.finished.then(() => setImmediate(() => stop.fire(ended())));
  try {
    const offset = await feedAll(command, input, { ...options, stop });
    if (input.close) (await options.agent()).closeStdin(command.identity.number);
    return { offset };
  } finally {
    options.signal.removeEventListener("abort", onAbort);
  }
}

/**
 * Gives the input to one writer: yields where it goes on, then, when another one takes it, says so and ends. It also ends with
 * the command. Throws as `writeStdin` does.
 */
export async function* takeInput(
  command: LiveCommand | undefined,
  writer: string,
  options: { readonly signal: AbortSignal; agent(): Promise<GuestLink> },
): AsyncGenerator<InputEvent, void, undefined> {
  requireInput(command);
  using claim = command.input.take(writer);
  const link = await options.agent();
  const offset = await link.takeInput(command.identity.number);
  command.stdinTaken = offset;
  yield { type: "taken", offset };
  const ended = command.finished.then(() => "ended" as const);
  const outcome = await abortable(Promise.race([claim.displaced, ended]), options.signal);
  if (outcome === "displaced") yield { type: "displaced" };
}

function requireInput(command: LiveCommand | undefined): asserts command is LiveCommand {
  if (command === undefined || command.status !== undefined) throw ended();
  if (command.identity.spec.stdin !== "pipe") {
    throw new SandboxError("FailedPrecondition", "the command was started without input", {
      hint: "start it with a pipe",
    });
  }
}

async function feedAll(command: LiveCommand, input: StdinWrite, options: Feeding): Promise<number> {
  let offset = input.offset;
  for await (const chunk of input.bytes) {
    for (let at = 0; at < chunk.length; at += PIECE_BYTES) {
      const piece = chunk.subarray(at, at + PIECE_BYTES);
      command.input.check(input.writer, offset, command.stdinTaken ?? offset);
      await feed(command, offset, piece, options);
      offset += piece.length;
    }
  }
  return offset;
}

async function feed(command: LiveCommand, offset: number, piece: Uint8Array, options: Feeding): Promise<void> {
  options.signal.throwIfAborted();
  if (command.status !== undefined) throw ended();
  const taken = command.stdinTaken ?? offset;
  if (offset + piece.length <= taken) return;
  const fresh = piece.subarray(Math.max(0, taken - offset));
  const at = offset + piece.length - fresh.length;
  const link = await options.agent();
  await options.stop.guard(link.writeStdin(command.identity.number, at, fresh));
  command.stdinTaken = Math.max(command.stdinTaken ?? 0, at + fresh.length);
}

function ended(): SandboxError {
  return new SandboxError("FailedPrecondition", "the command has ended and takes no more input");
}
