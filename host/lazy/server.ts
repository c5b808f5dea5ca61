import { hash } from "node:crypto";
import { fstatSync } from "node:fs";
import { Worker } from "node:worker_threads";
import { markFile, unmarkFile } from "./fanotify.ts";
import { FileTable, shareFile } from "./file-table.ts";
import { Hand } from "./hand.ts";
import { openRequests } from "./open-requests.ts";
import type { LazyFile, Mechanism, Read, Requests } from "./requests.ts";
import type { Marked, Missed, ServeOptions } from "./serve.ts";

const FIRST_FUSE_ID = 2;

/** What a server of lazy files is made of. */
export interface LazyServerOptions {
  readonly mechanism: Mechanism;
  /** The group, or the connection of the file system. Others hold it too: it must not end with this process. */
  readonly descriptor: number;
  /** The file with the requests in hand; one on a connection, for all servers that follow each other. */
  readonly hand: string;
  /** Brings what a read wants into its file and its pieces; a rejection ends the read with EIO. Must not take forever. */
  fill(file: LazyFile, read: Read): Promise<void>;
  /** A read met a mark of the file, see `LazyFile`, and has been answered. */
  onMark(file: LazyFile, read: Read): void;
  /** A failure that ends the server: the process should end too, and another take over. */
  readonly onFailure: (error: Error) => void;
}

/**
 * Answers the kernel's requests for lazy files. What is there is answered by a thread that does nothing else; this one fills. A
 * process has one server and ends by a signal: its thread waits in the kernel. First `add` the files that readers may know, then `start`.
 */
export class LazyServer {
  readonly #options: LazyServerOptions;
  readonly #files = new FileTable();
  readonly #hand: Hand;
  readonly #requests: Requests;
  readonly #freed = new Int32Array(new SharedArrayBuffer(4));
  readonly #unsent: LazyFile[] = [];
  #worker: Worker | undefined;

  constructor(options: LazyServerOptions) {
    this.#options = options;
    this.#hand = new Hand(options.hand);
    const { mechanism, descriptor } = options;
    this.#requests = openRequests({ mechanism, descriptor, hand: this.#hand, files: this.#files });
  }

  /** Takes over what an earlier server had in hand, then serves. */
  start(): void {
    const { mechanism, descriptor, hand, onFailure } = this.#options;
    const waiting = this.#hand.taken().flatMap((slot) => {
      const read = this.#requests.resume(slot);
      return read === undefined ? [] : [{ slot: slot.index, read }];
    });
    this.#requests.settle();
    const workerData: ServeOptions = { mechanism, descriptor, hand, freed: this.#freed.buffer };
    this.#worker = new Worker(new URL("./serve.ts", import.meta.url), { workerData });
    this.#worker.on("message", (message: Missed | Marked) => {
      if ("marked" in message) this.#mark(message.marked);
      else this.#answer(message);
    });
    this.#worker.on("error", onFailure);
    for (const file of this.#unsent.splice(0)) this.#worker.postMessage({ add: shareFile(file) });
    for (const missed of waiting) this.#answer(missed);
  }

  /** Serves one more file. When this returns, readers that open `path` of it are served; those that had it open are not. */
  add(file: LazyFile, path: string): void {
    this.#files.add(file);
    if (this.#worker === undefined) this.#unsent.push(file);
    else this.#worker.postMessage({ add: shareFile(file) });
    if (this.#options.mechanism === "fanotify" && !file.present.isComplete) markFile(this.#options.descriptor, path);
  }

  /** To be called when every piece is there: reads then cost nothing, where the mechanism allows it. */
  complete(path: string): void {
    if (this.#options.mechanism === "fanotify") unmarkFile(this.#options.descriptor, path);
  }

  /** Serves a file no more. Reads of it that wait are answered all the same; later ones fail where they are asked for. */
  remove(file: LazyFile, path: string): void {
    this.complete(path);
    this.#files.remove(file.id);
    this.#worker?.postMessage({ remove: file.id });
  }

  #mark(read: Read): void {
    const file = this.#files.byId(read.id);
    if (file !== undefined) this.#options.onMark(file, read);
  }

  #answer({ slot: index, read }: Missed): void {
    const slot = this.#hand.at(index);
    this.#fill(read)
      .then((file) => {
        // A piece that was taken away between its coming and its reading comes again.
        if (this.#requests.grant(slot, file)) this.#free();
        else this.#answer({ slot: index, read });
      })
      .catch(() => {
        this.#requests.refuse(slot);
        this.#free();
      })
      .catch(this.#options.onFailure);
  }

  async #fill(read: Read): Promise<LazyFile> {
    const file = this.#files.byId(read.id);
    if (file === undefined) throw new Error(`no lazy file ${read.id}`);
    await this.#options.fill(file, read);
    return file;
  }

  #free(): void {
    Atomics.add(this.#freed, 0, 1);
    Atomics.notify(this.#freed, 0);
  }
}

/**
 * The number by which requests name a file. Under fanotify it is that of the local file. FUSE remembers what it read by the number
 * alone, which therefore goes with the name: equal names must mean equal contents.
 */
export function fileId(mechanism: Mechanism, name: string, fd: number): number {
  if (mechanism === "fanotify") return fstatSync(fd).ino;
  // 48 bits; the first numbers are the kernel's.
  return Number.parseInt(hash("sha256", name, "hex").slice(0, 12), 16) + FIRST_FUSE_ID;
}
