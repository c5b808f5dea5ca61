import type { Writable } from "node:stream";
import type { Command, EndedCommand } from "#sdk";
import { type Io, writeTo } from "./io.ts";

/**
 * Joins a running command to this process's stdin, stdout and stderr, byte for byte, until it has ended and everything it
 * had written by then has been passed on. Background children that still hold its output are not waited for. When `leave`
 * fires, the promise rejects with its reason.
 */
export async function attach(command: Command, io: Io, leave: AbortSignal): Promise<EndedCommand> {
  const stop = new AbortController();
  const signal = AbortSignal.any([stop.signal, leave]);
  const pumps = [new Pump(command, "stdout", io.stdout, signal), new Pump(command, "stderr", io.stderr, signal)];
  try {
    // Reading stdin goes on as long as the command: a terminal never ends it.
    command.pipe(io.stdin, { signal }).catch(() => undefined);
    const view = await command.wait({ signal: leave });
    await Promise.all(pumps.map((pump) => pump.reached(view[pump.stream].seen)));
    return view;
  } finally {
    stop.abort();
    await Promise.all(pumps.map((pump) => pump.done.catch(() => undefined)));
  }
}

/** Passes one output stream on. */
class Pump {
  readonly stream: "stdout" | "stderr";
  /** Settles when the stream has ended or passing on has failed. */
  readonly done: Promise<void>;
  #at = 0;
  #target = Number.POSITIVE_INFINITY;
  readonly #arrived = Promise.withResolvers<void>();

  constructor(command: Command, stream: "stdout" | "stderr", sink: Writable, signal: AbortSignal) {
    this.stream = stream;
    this.done = this.#run(command, sink, signal);
    this.done.then(this.#arrived.resolve, this.#arrived.reject);
    this.#arrived.promise.catch(() => undefined);
  }

  /** Resolves when bytes up to `offset` have been passed on, or there are no more. */
  reached(offset: number): Promise<void> {
    this.#target = offset;
    if (this.#at >= offset) this.#arrived.resolve();
    return this.#arrived.promise;
  }

  async #run(command: Command, sink: Writable, signal: AbortSignal): Promise<void> {
    let open = true;
    for await (const bytes of command[this.stream]({ hold: true, signal })) {
      if (open && !(await writeTo(sink, bytes))) {
        // Nobody reads our output any more. In a pipe the command would be told by this signal at its next write.
        open = false;
        await command.signal("SIGPIPE", { signal });
      }
      this.#at += bytes.byteLength;
      if (this.#at >= this.#target) this.#arrived.resolve();
    }
  }
}
