import { randomBytes } from "node:crypto";
import { connect, type Socket } from "node:net";
import { constants } from "node:os";
import { BoundedLines } from "#core/bytes/bounded-lines.ts";
import { abortable } from "#core/concurrency/abort.ts";
import { hasCode, SandboxError } from "#core/errors.ts";
import type { GuestLink } from "#core/guest.ts";
import { openLink } from "./connect.ts";

/** What the first process of a machine counts of its sandbox. */
export interface MachineUsage {
  readonly pids: number;
  readonly memoryBytes: number;
  readonly peakBytes: number;
  readonly oomKills: number;
  readonly diskBytes: number;
}

/** The errno of a step that a machine could not do, and what it says about it. */
export class MachineFailure extends Error {
  readonly errno: number;

  constructor(verb: string, errno: number, text: string) {
    super(`the machine cannot ${verb}: ${text === "" ? `errno ${errno}` : `${text}: errno ${errno}`}`);
    this.errno = errno;
  }
}

/** The machine answers with less; more is not its. */
const LONGEST_LINE_BYTES = 16 * 1024;
const VERSION = "1";
const NONCE_BYTES = 32;
const SEED_BYTES = 64;
/** A machine that hangs is left to those who ask; what they asked for is not kept for ever. Writing its disk out may take minutes. */
const ASK_LIMIT_MS = 600_000;
/** More before a nonce than QEMU, the kernel and the bridge can have held of a connection before. */
const STALE_LIMIT_BYTES = 16 * 1024 * 1024;

interface Waiting {
  readonly verb: string;
  readonly resolve: (text: string) => void;
  readonly reject: (error: Error) => void;
  readonly timer: NodeJS.Timeout;
}

/** The lines between the node and the first process of a machine; README.md has them. One connection at a time. */
export class MachineControl {
  /** Resolves when the connection is gone: the machine has ended, or another took its place. */
  readonly closed: Promise<void>;
  readonly #socket: Socket;
  readonly #waiting = new Map<string, Waiting>();
  readonly #limitMs: number;
  /** The connection to the agent: the port takes one at a time. */
  #agent: Socket | undefined;
  /** Tells answers to this connection from those to one before. */
  readonly #prefix = randomBytes(6).toString("hex");
  #last = 0;
  #open = true;

  /** An answer may take `limitMs`; then who asked gets `Unavailable`. */
  constructor(socket: Socket, limitMs = ASK_LIMIT_MS) {
    this.#socket = socket;
    this.#limitMs = limitMs;
    const lines = new BoundedLines(LONGEST_LINE_BYTES);
    socket.on("data", (bytes) => {
      const whole = lines.push(bytes);
      if (whole === undefined) socket.destroy();
      for (const line of whole ?? []) this.#receive(line);
    });
    // What a broken connection means shows in its end.
    socket.on("error", () => {});
    this.closed = new Promise((resolve) => {
      socket.once("close", () => {
        this.#end();
        resolve();
      });
    });
  }

  /** Resolves when the machine answers. `FailedPrecondition` when it speaks another version. */
  async greet(): Promise<void> {
    const version = await this.#ask("hello");
    if (version !== VERSION) {
      throw new SandboxError("FailedPrecondition", `the machine speaks version ${version}, this node ${VERSION}`);
    }
  }

  /** Makes it another one than the machine it was copied from: its clock is the host's, its randomness new. */
  async renew(): Promise<void> {
    await this.#ask("seed", randomBytes(SEED_BYTES).toString("hex"));
    await this.#ask("clock", (Date.now() / 1_000).toFixed(6));
  }

  /** Mounts a layer from disks, by their serial numbers; the first has its metadata. */
  async mountLayer(number: number, disks: readonly string[]): Promise<void> {
    await this.#ask("layer", String(number), ...disks);
  }

  /** Mounts what the sandbox will write to. */
  async mountUpper(disk: string): Promise<void> {
    await this.#ask("upper", disk);
  }

  /** Makes the sandbox: the body of a CREATE of the launcher. */
  async launch(request: Buffer): Promise<void> {
    await this.#ask("launch", request.toString("hex"));
  }

  /** Gives a sandbox that was made already another name. */
  async name(hostname: string, hosts: string): Promise<void> {
    await this.#ask("name", hostname, Buffer.from(hosts).toString("hex"));
  }

  /** Resolves when the disks have what the system has written so far. */
  async sync(): Promise<void> {
    await this.#ask("sync");
  }

  /** Resolves when all processes of the sandbox hold still. `MachineFailure` when one does not, and then none is held. */
  async freeze(): Promise<void> {
    await this.#ask("freeze");
  }

  /** Brings what the sandbox has written so far to its disk, while everything goes on. */
  async flush(): Promise<void> {
    try {
      await this.#ask("flush");
    } catch (error) {
      // Somebody who left has asked for the same: what is not written yet, `lock` writes.
      if (!isBusy(error)) throw error;
    }
  }

  /** Resolves when nothing writes to the disk any more, and it is a whole file system. Who writes waits for `thaw`. */
  async lock(): Promise<void> {
    await this.#ask("lock");
  }

  /** Lets all go on that was held, and writers. */
  async thaw(): Promise<void> {
    await this.#ask("thaw");
  }

  /** `Internal` for what no count can be. */
  async usage(): Promise<MachineUsage> {
    const counts = (await this.#ask("usage")).split(" ").map(Number);
    if (!counts.every((count) => Number.isSafeInteger(count) && count >= 0)) {
      throw new SandboxError("Internal", "the machine does not tell what its sandbox uses");
    }
    const [pids = 0, memoryBytes = 0, peakBytes = 0, oomKills = 0, diskBytes = 0] = counts;
    return { pids, memoryBytes, peakBytes, oomKills, diskBytes };
  }

  /**
   * The first record of the kernel's log behind the one of that number that tells of a process killed for want of memory, as `/dev/kmsg` has it, and how long the
   * kernel has counted. Undefined: there is none. `Internal` for what no answer can be.
   */
  async nextKill(after: number): Promise<{ readonly record: string; readonly sinceBootMs: number } | undefined> {
    const answer = await this.#ask("killed", String(after));
    if (answer === "") return undefined;
    const [, sinceBootUs, record = ""] = /^(\d{1,15}) ((?:[0-9a-f]{2})+)$/.exec(answer) ?? [];
    if (sinceBootUs === undefined) {
      throw new SandboxError("Internal", "the machine does not tell who was killed");
    }
    return { record: Buffer.from(record, "hex").toString(), sinceBootMs: Number(sinceBootUs) / 1000 };
  }

  /** Has the system begin to give up a part of the files that it keeps in memory for the sandbox. Resolves with their bytes before that; undefined: it is still at the part before. */
  async rest(): Promise<number | undefined> {
    try {
      return Number(await this.#ask("rest"));
    } catch (error) {
      if (isBusy(error)) return undefined;
      throw error;
    }
  }

  /** Reaches the agent through its port, a socket at `path`, in place of an earlier connection. Rejects as `connectUnix` does. */
  async connectAgent(path: string, signal: AbortSignal): Promise<GuestLink> {
    this.#agent?.destroy();
    const socket = await connectPort(path);
    try {
      const nonce = randomBytes(NONCE_BYTES);
      const synchronised = awaitNonce(socket, nonce, signal);
      synchronised.catch(() => {});
      await abortable(this.#ask("agent", nonce.toString("hex")), signal);
      // Not before: an earlier connection to the agent would still have got it.
      socket.write(nonce);
      this.#agent = socket;
      await synchronised;
      const linking = openLink(socket, signal);
      // It was told to wait when the nonce had come.
      socket.resume();
      return await linking;
    } catch (error) {
      socket.destroy();
      throw error instanceof MachineFailure
        ? new SandboxError("SandboxLost", "no agent listens in the machine", { cause: error })
        : error;
    }
  }

  /** The link to the agent ends with it. */
  close(): void {
    this.#agent?.destroy();
    this.#socket.destroy();
  }

  #ask(verb: string, ...words: readonly string[]): Promise<string> {
    if (!this.#open) return Promise.reject(gone());
    this.#last += 1;
    const id = `${this.#prefix}.${this.#last}`;
    const { promise, resolve, reject } = Promise.withResolvers<string>();
    const timer = setTimeout(() => {
      this.#waiting.delete(id);
      reject(new SandboxError("Unavailable", `the machine does not answer ${verb}`));
    }, this.#limitMs);
    timer.unref();
    this.#waiting.set(id, { verb, resolve, reject, timer });
    // The end of a line that an earlier connection left unfinished comes first.
    this.#socket.write(`${this.#last === 1 ? "\n" : ""}${[id, verb, ...words].join(" ")}\n`);
    return promise;
  }

  #receive(line: string): void {
    const [id = "", status, ...words] = line.split(" ");
    if (id === "-" && status === "closed") {
      this.#agent?.destroy();
      return;
    }
    const waiting = this.#waiting.get(id);
    if (waiting === undefined) return;
    this.#waiting.delete(id);
    clearTimeout(waiting.timer);
    if (status === "ok") waiting.resolve(words.join(" "));
    else waiting.reject(new MachineFailure(waiting.verb, Number(words[0]), words.slice(1).join(" ")));
  }

  #end(): void {
    this.#open = false;
    for (const { reject, timer } of this.#waiting.values()) {
      clearTimeout(timer);
      reject(gone());
    }
    this.#waiting.clear();
  }
}

/** It does already what it was asked for. */
function isBusy(error: unknown): boolean {
  return error instanceof MachineFailure && error.errno === constants.errno.EBUSY;
}

/** Reaches the first process of a machine through its port, a socket at `path`. `SandboxLost` when nothing listens there. */
export async function connectMachine(path: string, signal: AbortSignal): Promise<MachineControl> {
  signal.throwIfAborted();
  const control = new MachineControl(await connectPort(path));
  const abort = () => control.close();
  signal.addEventListener("abort", abort, { once: true });
  try {
    await control.greet();
    return control;
  } catch (error) {
    control.close();
    signal.throwIfAborted();
    throw error;
  } finally {
    signal.removeEventListener("abort", abort);
  }
}

async function connectPort(path: string): Promise<Socket> {
  const socket = connect(path);
  try {
    await new Promise<void>((resolve, reject) => {
      socket.once("connect", resolve);
      socket.once("error", reject);
    });
    return socket;
  } catch (error) {
    if (hasCode(error, "ENOENT", "ECONNREFUSED")) throw gone(error);
    throw new SandboxError("Unavailable", "the machine cannot be reached", { cause: error });
  }
}

/** Resolves when the nonce has come; what follows it is what the socket gives next. */
function awaitNonce(socket: Socket, nonce: Buffer, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    let held: Buffer = Buffer.alloc(0);
    let dropped = 0;
    const settle = (act: () => void) => {
      socket.off("data", receive);
      socket.off("close", lost);
      signal.removeEventListener("abort", abort);
      act();
    };
    const abort = () => settle(() => reject(signal.reason));
    const lost = () => settle(() => reject(gone()));
    const receive = (bytes: Buffer) => {
      held = Buffer.concat([held, bytes]);
      const at = held.indexOf(nonce);
      if (at >= 0) {
        socket.pause();
        const rest = held.subarray(at + nonce.length);
        settle(() => {
          if (rest.length > 0) socket.unshift(rest);
          resolve();
        });
        return;
      }
      dropped += Math.max(0, held.length - nonce.length);
      held = held.subarray(Math.max(0, held.length - nonce.length));
      if (dropped > STALE_LIMIT_BYTES) lost();
    };
    socket.on("data", receive);
    socket.once("close", lost);
    signal.addEventListener("abort", abort, { once: true });
  });
}

function gone(cause?: unknown): SandboxError {
  return new SandboxError("SandboxLost", "the machine of the sandbox has ended", cause === undefined ? {} : { cause });
}
