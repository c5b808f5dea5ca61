import { INPUT_WINDOW_BYTES } from "#api/index.ts";
import { SandboxError } from "#core/errors.ts";
import { failureOf } from "../failure.ts";
import type { MessageSocket } from "./socket.ts";
import type { AttachTarget } from "./target.ts";

const OFFSET_BYTES = 8;
/** Messages that are kept as they came: beyond it they are joined, for each costs more than a short one's bytes. */
const PIECES_LIMIT = 1024;

interface Piece {
  readonly offset: number;
  readonly bytes: Buffer;
}

/** The input that one attachment brings: kept in order, given to the node a run at a time, and never more than the window. */
export class InputFeed {
  readonly #target: AttachTarget;
  readonly #socket: Pick<MessageSocket, "tell" | "signal">;
  #state: "absent" | "asked" | "held" | "lost" = "absent";
  #pieces: Piece[] = [];
  #waitingBytes = 0;
  #close = false;
  #feeding: Promise<void> | undefined;

  constructor(target: AttachTarget, socket: Pick<MessageSocket, "tell" | "signal">) {
    this.#target = target;
    this.#socket = socket;
  }

  /** Takes the input over and holds it. Resolves when it is lost, or the command has ended; a refusal is told, not thrown. */
  async take(): Promise<void> {
    const { id, node, command, writer } = this.#target;
    this.#state = "asked";
    try {
      for await (const event of node.takeInput(id, command, writer, this.#socket.signal)) {
        if (event.type === "displaced") {
          this.#drop();
          this.#socket.tell({ type: "input-lost" });
        } else {
          this.#state = "held";
          this.#socket.tell({ type: "input-taken", offset: event.offset });
        }
      }
    } catch (error) {
      this.#drop();
      this.#refuse(error);
    }
  }

  /** One message with input. Throws for one that no client may send. */
  push(message: Buffer): void {
    if (message.length < OFFSET_BYTES) throw new SandboxError("InvalidArgument", "input without its offset");
    const bytes = message.subarray(OFFSET_BYTES);
    const offset = Number(message.readBigUInt64LE(0));
    if (!Number.isSafeInteger(offset)) throw new SandboxError("InvalidArgument", "input at an offset beyond 2^53");
    if (this.#state === "lost") return;
    if (this.#state !== "held") {
      throw new SandboxError("FailedPrecondition", "the attachment has not taken the input", {
        hint: "attach with input=take, and send input after the event input-taken",
      });
    }
    this.#waitingBytes += bytes.length;
    if (this.#waitingBytes > INPUT_WINDOW_BYTES) {
      throw new SandboxError("TooLarge", `more than ${INPUT_WINDOW_BYTES} bytes of input under way`, {
        hint: "wait for input-ack",
      });
    }
    if (bytes.length === 0) return;
    this.#pieces.push({ offset, bytes });
    if (this.#pieces.length > PIECES_LIMIT) this.#join();
    this.#start();
  }

  /** Ends the input after what was sent. */
  close(): void {
    if (this.#state === "lost") return;
    this.#close = true;
    this.#start();
  }

  /** Resolves when nothing is on its way to the command. */
  get settled(): Promise<void> {
    return this.#feeding ?? Promise.resolve();
  }

  #start(): void {
    this.#feeding ??= this.#feed().finally(() => {
      this.#feeding = undefined;
      if (this.#pieces.length > 0 || this.#close) this.#start();
    });
  }

  async #feed(): Promise<void> {
    try {
      while (this.#pieces.length > 0 || this.#close) await this.#feedRun();
    } catch (error) {
      // A command that ends takes no more, and its end says so.
      this.#drop();
      this.#refuse(error);
    }
  }

  /** Everything that waits, in one call as far as it is one run. */
  async #feedRun(): Promise<void> {
    const { id, node, command, writer } = this.#target;
    const pieces = this.#takeRun();
    const length = pieces.reduce((sum, { bytes }) => sum + bytes.length, 0);
    const close = this.#close && this.#pieces.length === 0;
    if (close) this.#close = false;
    const offset = pieces[0]?.offset ?? this.#end;
    const input = { offset, bytes: chunks(pieces), close, writer };
    const answer = await node.writeStdin(id, command, input, this.#socket.signal);
    this.#end = answer.offset;
    this.#waitingBytes -= length;
    if (length > 0) this.#socket.tell({ type: "input-ack", offset: answer.offset });
  }

  /** Where the last call ended. */
  #end = 0;

  #takeRun(): Piece[] {
    const run: Piece[] = [];
    for (let next = this.#pieces[0]; next !== undefined; next = this.#pieces[0]) {
      const last = run.at(-1);
      if (last !== undefined && last.offset + last.bytes.length !== next.offset) break;
      run.push(next);
      this.#pieces.shift();
    }
    return run;
  }

  #join(): void {
    const run = this.#takeRun();
    const [first] = run;
    if (first === undefined || this.#pieces.length > 0) {
      throw new SandboxError("InvalidArgument", "input in too many pieces that do not follow each other");
    }
    this.#pieces.push({ offset: first.offset, bytes: Buffer.concat(run.map(({ bytes }) => bytes)) });
  }

  #drop(): void {
    this.#state = "lost";
    this.#pieces = [];
    this.#close = false;
  }

  #refuse(error: unknown): void {
    this.#socket.tell({ type: "refused", request: "input", ...failureOf(error).body });
  }
}

async function* chunks(pieces: readonly Piece[]): AsyncGenerator<Uint8Array> {
  for (const { bytes } of pieces) yield bytes;
}
