import { createHash } from "node:crypto";
import type { CreateSandbox } from "#api/index.ts";
import type { CallOptions } from "./caller.ts";
import { DsecError } from "./errors.ts";
import { pooled } from "./pool.ts";
import type { Result } from "./result.ts";
import type { CommandLine, RunOptions, Sandbox } from "./sandbox.ts";
import type { Sandboxes } from "./sandboxes.ts";

/** How to do something with many sandboxes. */
export interface ManyOptions extends CallOptions {
  /** How many at a time. */
  readonly concurrency?: number;
}

/** How to create many. */
export interface CreateManyOptions extends ManyOptions {
  /** Each sandbox has a key made of it and its index, so that a repeat finds those that are there. */
  readonly idempotencyKey?: string;
}

/** How to run a command in many. */
export interface RunManyOptions extends ManyOptions, Omit<RunOptions, "stdin" | "signal" | "timeoutMs"> {}

/** What came of one create, by its index from 0 on. */
export type Created =
  | { readonly index: number; readonly sandbox: Sandbox }
  | { readonly index: number; readonly error: Error };

/** What came of a command in one sandbox. */
export type Ran =
  | { readonly sandbox: Sandbox; readonly result: Result }
  | { readonly sandbox: Sandbox; readonly error: Error };

/** What came of one removal; without an error nothing of the sandbox is left. */
export interface Removed {
  readonly id: string;
  readonly error?: Error;
}

const CREATES_AT_ONCE = 16;
const REMOVALS_AT_ONCE = 16;
const COMMANDS_AT_ONCE = 64;

/** As `Sandboxes.createMany` says. */
export async function* createMany(
  sandboxes: Sandboxes,
  count: number,
  request: CreateSandbox,
  options: CreateManyOptions,
): AsyncGenerator<Created> {
  const { concurrency = CREATES_AT_ONCE, idempotencyKey: key, signal, timeoutMs } = options;
  const leave = new AbortController();
  const either = signal === undefined ? leave.signal : AbortSignal.any([signal, leave.signal]);
  const unclaimed = new Map<number, Sandbox>();
  const underWay = new Set<Promise<Created>>();
  const one = async (index: number): Promise<Created> => {
    const own = key === undefined ? {} : { idempotencyKey: keyOfOne(key, index) };
    try {
      const sandbox = await sandboxes.create(request, { ...own, signal: either, timeoutMs });
      if (key === undefined) unclaimed.set(index, sandbox);
      return { index, sandbox };
    } catch (error) {
      return { index, error: asError(error) };
    }
  };
  const tracked = (index: number) => {
    const promise = one(index);
    underWay.add(promise);
    return promise.finally(() => underWay.delete(promise));
  };
  if (!Number.isInteger(count) || count < 0) {
    throw new DsecError("InvalidArgument", `count ${count} is not a whole number from 0 on`);
  }
  const indexes = Array.from({ length: count }, (_, index) => index);
  try {
    for await (const created of pooled(indexes, concurrency, tracked)) {
      signal?.throwIfAborted();
      unclaimed.delete(created.index);
      yield created;
    }
  } finally {
    // Whoever stops early knows nothing of the rest: nobody else would remove it.
    leave.abort(new DOMException("nobody waits for it any more", "AbortError"));
    await Promise.all(underWay);
    await Promise.all([...unclaimed.values()].map((sandbox) => sandbox.remove().catch(() => undefined)));
  }
}

/** As `Sandboxes.runMany` says. */
export async function* runMany(
  sandboxes: Iterable<Sandbox>,
  line: CommandLine,
  options: RunManyOptions,
): AsyncGenerator<Ran> {
  const { concurrency = COMMANDS_AT_ONCE, ...rest } = options;
  const one = async (sandbox: Sandbox): Promise<Ran> => {
    try {
      return { sandbox, result: await sandbox.run(line, rest) };
    } catch (error) {
      return { sandbox, error: asError(error) };
    }
  };
  for await (const ran of pooled(sandboxes, concurrency, one)) {
    options.signal?.throwIfAborted();
    yield ran;
  }
}

/** As `Sandboxes.removeMany` says. */
export async function* removeMany(
  sandboxes: Sandboxes,
  ids: Iterable<string>,
  options: ManyOptions,
): AsyncGenerator<Removed> {
  const { concurrency = REMOVALS_AT_ONCE, ...rest } = options;
  const one = async (id: string): Promise<Removed> => {
    try {
      await sandboxes.remove(id, rest);
      return { id };
    } catch (error) {
      return { id, error: asError(error) };
    }
  };
  for await (const removed of pooled(ids, concurrency, one)) {
    options.signal?.throwIfAborted();
    yield removed;
  }
}

/** Of any length of key, and never one that somebody would give to a single create. */
function keyOfOne(key: string, index: number): string {
  return createHash("sha256").update(`${key}\n${index}`).digest("hex");
}

function asError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}
