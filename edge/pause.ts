import type { Backend, Handle, Pausing } from "#core/backend.ts";
import { asSandboxError, SandboxError } from "#core/errors.ts";
import { admit } from "#core/lifecycle.ts";
import type { BackendKind } from "#core/sandbox.ts";
import type { AgentConnection } from "#edge/agent-connection.ts";
import type { SandboxRecord } from "#edge/sandbox-record.ts";

/** What a pause needs of the driver of its sandbox. */
export interface PauseHost {
  readonly backend: Backend;
  readonly record: SandboxRecord;
  readonly connection: AgentConnection;
  /** Runs `work` within the time that a creation has; its signal fires when the sandbox is on its way out, too. */
  within<T>(work: (signal: AbortSignal) => Promise<T>): Promise<T>;
  /** It runs, and calls may come: makes a link again where there is none. */
  ready(): void;
  fail(error: unknown): Promise<void>;
}

//   ready ─► pausing ─► paused ─► resuming ─► ready      Each is recorded before it is begun. What cannot be saved goes on,
//     ▲         │         ▲           │                  what cannot be brought back stays saved; only what is lost fails.
//     └─────────┘         └───────────┘

/** Pauses and resumes of one sandbox; the driver's queue lets them overlap with nothing. */
export class Pauses {
  readonly #host: PauseHost;

  constructor(host: PauseHost) {
    this.#host = host;
  }

  /** Throws `FailedPrecondition` where the backend has no pauses. */
  get pausing(): Pausing {
    const { pausing, kind } = this.#host.backend;
    if (pausing !== undefined) return pausing;
    throw new SandboxError("FailedPrecondition", `sandboxes of the ${kind} backend cannot be paused`, {
      hint: "let them idle, or pack and remove them",
    });
  }

  /** Saves what was copied for a sandbox that never ran. Rejects with `FailedPrecondition` where the backend cannot. */
  async keep(signal: AbortSignal): Promise<Handle> {
    const kept = this.pausing.keep?.(this.#host.record.row.spec, signal);
    if (kept === undefined) throw cannotKeep(this.#host.backend.kind);
    return await kept;
  }

  /** Resolves when it is paused; does nothing when it is already. */
  async pause(): Promise<void> {
    const { record, connection, within } = this.#host;
    if (!admit("pause", record.state, record.row.reason)) return;
    const handle = handleOf(record);
    record.change("pausing");
    // What is under way breaks off, and waits for the next link as after any break.
    connection.drop();
    try {
      const saved = await within((signal) => this.pausing.pause(handle, record.row.spec, signal));
      if (record.state !== "pausing") return;
      record.change("paused", { handle: saved });
      record.releaseCompute();
    } catch (error) {
      await this.#goOn(error);
      throw asSandboxError(error);
    }
  }

  /** Resolves when it is ready; does nothing when it is already. */
  async resume(): Promise<void> {
    const { record } = this.#host;
    if (!admit("resume", record.state, record.row.reason)) return;
    record.holdCompute();
    record.change("resuming");
    await this.finish();
  }

  /** Brings a sandbox back that is `resuming`, or was when the last edge ended. */
  async finish(): Promise<void> {
    const { record, connection, within, ready } = this.#host;
    const { spec, slot } = record.row;
    const before = handleOf(record);
    try {
      const handle = await within((signal) => this.pausing.resume(before, spec, { slot }, signal));
      if (record.state !== "resuming") return;
      record.change("resuming", { handle });
      await connection.reach(handle);
      if (record.state !== "resuming") return;
      record.change("ready");
      ready();
    } catch (error) {
      await this.#stay(error);
      throw asSandboxError(error);
    }
  }

  /** A sandbox that could not be saved. */
  async #goOn(error: unknown): Promise<void> {
    const { record, ready, fail } = this.#host;
    if (record.state !== "pausing") return;
    if (asSandboxError(error).kind === "SandboxLost") return await fail(error);
    record.change("ready");
    ready();
  }

  /** A sandbox that could not be brought back. */
  async #stay(error: unknown): Promise<void> {
    const { record, fail } = this.#host;
    if (record.state !== "resuming") return;
    if (asSandboxError(error).kind === "SandboxLost") return await fail(error);
    record.change("paused");
    record.releaseCompute();
  }
}

/** Of a backend whose sandboxes cannot be copied without being started. */
export function cannotKeep(kind: BackendKind): SandboxError {
  return new SandboxError("FailedPrecondition", `sandboxes of the ${kind} backend have no snapshots of memory`, {
    hint: "pack them, or fork them",
  });
}

function handleOf({ row }: SandboxRecord): Handle {
  if (row.handle === undefined) throw new Error("a sandbox that was ready has a handle");
  return row.handle;
}
