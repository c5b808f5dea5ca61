import type { Attachment, Command, EndedCommand } from "#sdk";
import { CliError } from "./cli-error.ts";
import { DetachKeys } from "./detach-keys.ts";
import { exitStatusOf, noteOn } from "./exit-status.ts";
import { Interrupts } from "./interrupts.ts";
import { type CliContext, type LocalTerminal, writeTo } from "./io.ts";

/** How to join a command. */
export interface JoinOptions {
  /** Type into it. */
  readonly input: boolean;
  /** What happens to the command when the person is gone: it is hung up, as with any terminal, or goes on. */
  readonly onLeave: "hang-up" | "go-on";
}

/**
 * Joins this process's terminal, or what its streams are, to a command, and returns the exit status for its end. Leaving by the
 * detach keys is a success. The local terminal is as it was before, however this ends.
 */
export async function joinTerminal(context: CliContext, command: Command, options: JoinOptions): Promise<number> {
  const { io } = context;
  using interrupts = new Interrupts(io);
  const { signal } = interrupts;
  const { terminal: remote } = await command.info({ signal });
  const local = remote === undefined ? undefined : io.terminal;
  await using attached = await command.attach({ input: options.input, hold: true, signal });
  using stack = new DisposableStack();
  if (local !== undefined) follow(stack, command, local);
  const keys = options.input ? stack.use(new Typing(context, attached, stack.use(rawWhen(local)))) : undefined;
  try {
    const ended = await show(context, attached, keys?.detached);
    if (ended === undefined) {
      io.stderr.write(`\r\ndsec: detached from ${command.id}, which goes on\r\n`);
      return 0;
    }
    const note = noteOn(ended.status);
    stack.dispose();
    if (note !== undefined) io.stderr.write(`dsec: ${note}\n`);
    return exitStatusOf(ended.status);
  } catch (error) {
    if (interrupts.left === undefined) throw error;
    if (options.onLeave === "hang-up") await command.signal("SIGHUP", { timeoutMs: 5_000 }).catch(() => undefined);
    return interrupts.left;
  }
}

/** The size of the person's terminal for a command that is about to start. Throws when it is to be typed into and there is none. */
export function sizeFor(
  { io }: CliContext,
  input: boolean,
): { readonly rows: number; readonly cols: number } | undefined {
  if (io.terminal !== undefined) return io.terminal.size();
  if (!input) return undefined;
  throw new CliError("FailedPrecondition", "stdin and stdout are no terminal", { hint: "leave out --tty" });
}

interface Raw extends Disposable {
  readonly detachable: boolean;
}

function rawWhen(local: LocalTerminal | undefined): Raw {
  if (local === undefined) return { detachable: false, [Symbol.dispose]: () => undefined };
  const raw = local.raw();
  return { detachable: true, [Symbol.dispose]: () => raw[Symbol.dispose]() };
}

/** Gives the command's terminal the size of the local one, now and from now on. */
function follow(stack: DisposableStack, command: Command, local: LocalTerminal): void {
  // A command that has ended meanwhile has no size.
  const resize = () => void command.resize(local.size()).catch(() => undefined);
  resize();
  stack.use(local.onResize(resize));
}

/** Passes output on until the end, or until the person detaches: undefined then. */
async function show(
  { io }: CliContext,
  attached: Attachment,
  detached: Promise<"detached"> | undefined,
): Promise<EndedCommand | undefined> {
  const events = attached[Symbol.asyncIterator]();
  let ended: EndedCommand | undefined;
  for (;;) {
    const next = await (detached === undefined ? events.next() : Promise.race([events.next(), detached]));
    if (next === "detached") return undefined;
    if (next.done === true) return ended;
    const event = next.value;
    if (event.type === "output" && !(await writeTo(io[event.stream], event.bytes))) return ended;
    if (event.type === "gap") io.stderr.write(`dsec: ${event.to - event.from} bytes were not kept\r\n`);
    if (event.type === "input-lost") io.stderr.write("\r\ndsec: another client has taken the input\r\n");
    if (event.type === "exit") ended = event.command;
  }
}

/** Sends what is typed, or comes from a file, at the command's pace. */
class Typing implements Disposable {
  readonly #context: CliContext;
  readonly #attached: Attachment;
  readonly #keys: DetachKeys | undefined;
  readonly #detached = Promise.withResolvers<"detached">();
  readonly #onData = (bytes: Uint8Array) => this.#take(bytes);
  readonly #onEnd = () => this.#attached.closeInput();

  constructor(context: CliContext, attached: Attachment, raw: Raw) {
    this.#context = context;
    this.#attached = attached;
    this.#keys = raw.detachable ? new DetachKeys() : undefined;
    const { stdin } = context.io;
    stdin.on("data", this.#onData);
    stdin.on("end", this.#onEnd);
  }

  /** Resolves when the detach keys were typed. */
  get detached(): Promise<"detached"> {
    return this.#detached.promise;
  }

  [Symbol.dispose](): void {
    const { stdin } = this.#context.io;
    stdin.off("data", this.#onData);
    stdin.off("end", this.#onEnd);
    stdin.pause();
  }

  #take(bytes: Uint8Array): void {
    const { stdin } = this.#context.io;
    const typed = this.#keys?.take(bytes) ?? { send: bytes, detach: false };
    if (typed.send.byteLength > 0) {
      stdin.pause();
      // Input that nobody takes any more is told by what follows: the end, or the loss of the input.
      const resume = () => stdin.resume();
      this.#attached.write(typed.send).then(resume, () => undefined);
    }
    if (typed.detach) this.#detached.resolve("detached");
  }
}
