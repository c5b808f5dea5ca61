import { type BlankRequest, type Cradle, type CradleRequest, startCradle } from "#host/cradle/client.ts";

/** How the launcher is started. */
export type LauncherOptions = Parameters<typeof startCradle>[0];

/**
 * The launcher of a node, for as long as the node is there: one that died (killed by hand, or by a host short of memory) is
 * followed by another at the next create. Creates that it took along reject with `Unavailable`.
 */
export class Launcher implements AsyncDisposable {
  readonly #options: LauncherOptions;
  #cradle: Promise<Cradle> | undefined;
  #closing = false;

  private constructor(options: LauncherOptions) {
    this.#options = options;
  }

  /** Rejects with `FailedPrecondition` when this host cannot run it. */
  static async open(options: LauncherOptions): Promise<Launcher> {
    const launcher = new Launcher(options);
    await launcher.#running();
    return launcher;
  }

  /** As `Cradle.create`. */
  async create(request: CradleRequest, signal: AbortSignal): Promise<{ readonly pid: number }> {
    return (await this.#running()).create(request, signal);
  }

  /** As `Cradle.blank`. */
  async blank(request: BlankRequest, signal: AbortSignal): Promise<{ readonly pid: number }> {
    return (await this.#running()).blank(request, signal);
  }

  /** As `Cradle.drop`; with the launcher its blanks are gone anyway. */
  drop(uidBase: number): void {
    void this.#cradle?.then(
      (cradle) => cradle.drop(uidBase),
      () => undefined,
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closing = true;
    const cradle = await this.#cradle?.catch(() => undefined);
    await cradle?.[Symbol.asyncDispose]();
  }

  #running(): Promise<Cradle> {
    this.#cradle ??= this.#start();
    return this.#cradle;
  }

  async #start(): Promise<Cradle> {
    try {
      const cradle = await startCradle(this.#options);
      void cradle.closed.then(() => {
        if (!this.#closing) this.#options.log("the container launcher has ended; the next create starts another");
        this.#cradle = undefined;
      });
      return cradle;
    } catch (error) {
      this.#cradle = undefined;
      throw error;
    }
  }
}
