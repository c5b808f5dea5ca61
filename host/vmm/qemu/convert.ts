import { chmodSync, chownSync } from "node:fs";
import { join } from "node:path";
import { SandboxError } from "#core/errors.ts";
import { runConfined } from "#host/fetch/confined.ts";

/** An image to be turned into plain bytes of its disk. */
export interface Conversion {
  /** Holds `from` and nothing else; both files and it become the user's. */
  readonly dir: string;
  readonly from: string;
  /** A name in `dir`; the file is made. */
  readonly to: string;
  readonly format: "qcow2" | "vmdk";
  readonly virtualBytes: number;
  /** Nothing else may have it. */
  readonly uid: number;
  /** Rejects when the disk has no room for more. */
  readonly guard: () => Promise<void>;
  readonly signal: AbortSignal;
}

/** Tables of a disk of 64 GiB in small clusters, and the program. */
const MEMORY_MIB = 2048;
/** An image may be made so that reading it takes for ever. */
const TIME_LIMIT_MS = 30 * 60_000;
const LOG_BYTES = 64 * 1024;

/**
 * Writes the bytes of an image's disk, with holes where it has none, by `qemu-img` as a user of its own without network. The header was looked at
 * before: it names no other file. `InvalidArgument` for a damaged image, `FailedPrecondition` on a host without `qemu-img`.
 */
export async function convertToRaw(conversion: Conversion): Promise<void> {
  const { dir, from, to, format, uid, virtualBytes, signal } = conversion;
  chmodSync(dir, 0o700);
  for (const path of [dir, join(dir, from)]) chownSync(path, uid, uid);
  const deadline = AbortSignal.timeout(TIME_LIMIT_MS);
  const { code, log } = await runConfined(
    {
      words: ["qemu-img", "convert", "-f", format, "-O", "raw", "-S", "64k", from, to],
      package: "qemu-utils",
      dir,
      maxFileBytes: virtualBytes,
      alone: { uid, memoryMiB: MEMORY_MIB },
      guard: conversion.guard,
      signal: AbortSignal.any([signal, deadline]),
    },
    LOG_BYTES,
  ).catch((error: unknown) => {
    if (!deadline.aborted || signal.aborted) throw error;
    throw new SandboxError("InvalidArgument", `the image was not read within ${TIME_LIMIT_MS / 60_000} minutes`, {
      hint: "convert it to a raw image",
      cause: error,
    });
  });
  if (code === 0) return;
  throw new SandboxError("InvalidArgument", "the image cannot be read: it is damaged", {
    details: { said: log.join("; ").slice(-500) },
    hint: "check it: qemu-img check IMAGE",
  });
}
