import type { CommandView, OutputStream, TerminalSize } from "#api/index.ts";
import { Attachment, type AttachOptions } from "./attachment.ts";
import { type Caller, type CallOptions, concat } from "./caller.ts";
import { type EndedCommand, hasEnded } from "./ended.ts";
import { OutputLostError } from "./errors.ts";
import { type OutputChunk, type OutputOptions, readOutput } from "./output.ts";
import { segment } from "./paths.ts";
import { type Collected, Result } from "./result.ts";

/** How long the server holds one question for a command's end; the client asks again until its own limit. */
export const WAIT_MS = 20_000;

/** A command that was started. It lives in its sandbox by its id: broken connections and restarts do not end it. */
export class Command {
  readonly id: string;
  readonly #caller: Caller;
  readonly #path: string;
  #view: CommandView | undefined;
  #stdinOffset = 0;
  /** Writes are sent one after the other. */
  #stdinTail: Promise<void> = Promise.resolve();

  /** Made by `Sandbox`. */
  constructor(caller: Caller, sandboxPath: string, id: string, view?: CommandView) {
    this.#caller = caller;
    this.#path = `${sandboxPath}/commands/${segment(id)}`;
    this.#view = view;
    this.id = id;
  }

  /** The process id inside the sandbox, when this handle has heard it. */
  get pid(): number | undefined {
    return this.#view?.pid;
  }

  /** What the server knows now. */
  async info(options: CallOptions = {}): Promise<CommandView> {
    this.#view = await this.#caller.json<CommandView>({ ...options, method: "GET", path: this.#path });
    return this.#view;
  }

  /**
   * Resolves when it has ended, however it did. Background children may still hold its output, unless it was started to
   * wait for its `pipes`.
   */
  async wait(options: CallOptions = {}): Promise<EndedCommand> {
    const endsAt = options.timeoutMs === undefined ? Number.POSITIVE_INFINITY : Date.now() + options.timeoutMs;
    const patience = this.#caller.patience(options);
    for (;;) {
      const view = this.#view;
      if (view !== undefined && hasEnded(view)) return view;
      try {
        this.#view = await this.#awaitEnd(Math.max(1, endsAt - Date.now()), options.signal);
        patience.progressed();
      } catch (error) {
        await patience.broke(error);
        continue;
      }
      if (Date.now() >= endsAt && !hasEnded(this.#view)) throw new DOMException("the command runs on", "TimeoutError");
    }
  }

  /** Waits, then collects what is kept of both streams. */
  async result(options: CallOptions = {}): Promise<Result> {
    const view = await this.wait(options);
    const [stdout, stderr] = await Promise.all([
      this.#collect("stdout", view, options),
      this.#collect("stderr", view, options),
    ]);
    return new Result(view.status, stdout, stderr);
  }

  /** Its stdout as it comes, byte-exact; throws `OutputLostError` where bytes were dropped. */
  stdout(options: OutputOptions = {}): AsyncGenerator<Uint8Array> {
    return withoutGaps("stdout", this.output("stdout", options), options.offset ?? 0);
  }

  /** Its stderr as it comes, byte-exact; throws `OutputLostError` where bytes were dropped. */
  stderr(options: OutputOptions = {}): AsyncGenerator<Uint8Array> {
    return withoutGaps("stderr", this.output("stderr", options), options.offset ?? 0);
  }

  /** One stream with offsets, gaps visible. */
  output(stream: OutputStream, options: OutputOptions = {}): AsyncGenerator<OutputChunk> {
    return readOutput(this.#caller, this.#path, stream, options);
  }

  /** Joins its output as it comes, and with `input` its input: for terminals, and for whoever takes over. */
  async attach(options: AttachOptions = {}): Promise<Attachment> {
    const attachment = new Attachment(this.#caller, this.#path, options);
    await attachment.open();
    return attachment;
  }

  /** Gives its terminal another size; the program in the foreground is told. */
  async resize(size: TerminalSize, options: CallOptions = {}): Promise<void> {
    const { rows, cols } = size;
    await this.#caller.json({
      ...options,
      method: "POST",
      path: `${this.#path}/resize`,
      json: { rows, cols },
      repeatable: true,
    });
  }

  /** Feeds stdin; resolves when the sandbox has taken the bytes. A broken connection repeats no byte. */
  write(data: string | Uint8Array, options: CallOptions = {}): Promise<void> {
    const bytes = typeof data === "string" ? new TextEncoder().encode(data) : data;
    return this.#queue(() => this.#send(bytes, false, options));
  }

  /** Feeds a whole input at the command's pace, then closes stdin. */
  pipe(source: string | Uint8Array | AsyncIterable<Uint8Array>, options: CallOptions = {}): Promise<void> {
    const bytes = typeof source === "string" ? new TextEncoder().encode(source) : source;
    return this.#queue(() => this.#send(bytes, true, options));
  }

  /** Ends stdin: the command reads the end of its input. */
  closeStdin(options: CallOptions = {}): Promise<void> {
    return this.#queue(() => this.#send(new Uint8Array(), true, options));
  }

  /** To the command's process group, by name (`SIGTERM`, `SIGRTMIN+1`) or number. No effect when it has ended. */
  async signal(signal: string | number, options: CallOptions = {}): Promise<void> {
    await this.#caller.json({ ...options, method: "POST", path: `${this.#path}/signal`, json: { signal } });
  }

  /** What the server knows at the command's end, or when it has waited long enough. */
  #awaitEnd(leftMs: number, signal: AbortSignal | undefined): Promise<CommandView> {
    return this.#caller.json<CommandView>({
      method: "GET",
      path: this.#path,
      query: { waitMs: Math.min(WAIT_MS, leftMs) },
      signal,
      timeoutMs: Math.min(2 * WAIT_MS, leftMs + WAIT_MS),
      repeatable: false,
    });
  }

  async #send(bytes: Uint8Array | AsyncIterable<Uint8Array>, close: boolean, options: CallOptions): Promise<void> {
    const reply = await this.#caller.json<{ readonly offset: number }>({
      ...options,
      method: "POST",
      path: `${this.#path}/stdin`,
      query: { offset: this.#stdinOffset, close },
      bytes,
      repeatable: true,
    });
    this.#stdinOffset = reply.offset;
  }

  #queue(action: () => Promise<void>): Promise<void> {
    const run = this.#stdinTail.then(action);
    this.#stdinTail = run.catch(() => undefined);
    return run;
  }

  /** Everything up to what the leader had written when it ended; a background child may hold the stream open for ever. */
  async #collect(stream: OutputStream, view: CommandView, options: CallOptions): Promise<Collected> {
    const { seen } = view[stream];
    const chunks: Uint8Array[] = [];
    let [offset, whole] = [0, true];
    if (seen === 0) return { bytes: concat(chunks), whole };
    for await (const chunk of this.output(stream, { signal: options.signal })) {
      whole &&= chunk.offset === offset;
      chunks.push(chunk.bytes);
      offset = chunk.offset + chunk.bytes.byteLength;
      if (offset >= seen) break;
    }
    return { bytes: concat(chunks), whole: whole && offset >= seen };
  }
}

async function* withoutGaps(
  stream: OutputStream,
  chunks: AsyncGenerator<OutputChunk>,
  first: number,
): AsyncGenerator<Uint8Array> {
  let expected = first;
  for await (const chunk of chunks) {
    if (chunk.offset > expected) throw new OutputLostError(stream, expected, chunk.offset);
    expected = chunk.offset + chunk.bytes.byteLength;
    yield chunk.bytes;
  }
}
