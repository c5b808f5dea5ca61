import { chmodSync, mkdirSync, readdirSync, renameSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { hasCode, SandboxError } from "#core/errors.ts";
import { checkPlain } from "./plain.ts";
import { removeTree } from "./remove-tree.ts";
import type { Still, Upper, UpperReading, Volume } from "./volume.ts";

/** Uppers as plain directories below `<dataDir>/uppers`: works everywhere, limits nothing. */
export async function openDirectoryUppers(dataDir: string, reason: string): Promise<Volume> {
  const path = join(dataDir, "uppers");
  await mkdir(path, { recursive: true });
  // What is in a sandbox is no business of the users of the host.
  chmodSync(path, 0o700);
  return new DirectoryUppers(path, reason);
}

class DirectoryUppers implements Volume {
  readonly kind = "directory";
  readonly supportsLimits = false;
  readonly copies = false;
  readonly sharedDir = undefined;
  readonly reason: string;
  readonly #path: string;

  constructor(path: string, reason: string) {
    this.#path = path;
    this.reason = reason;
  }

  checkLimit(limitBytes: number | undefined): void {
    if (limitBytes === undefined) return;
    throw new SandboxError("FailedPrecondition", "this node cannot enforce the disk limit", {
      hint: this.reason,
      details: { limit: "disk limit" },
    });
  }

  createUpper(id: string, limitBytes: number | undefined): Upper {
    this.checkLimit(limitBytes);
    const root = join(this.#path, id);
    const upper = { upperDir: join(root, "upper"), workDir: join(root, "work") };
    try {
      for (const dir of [root, upper.upperDir, upper.workDir]) mkdirSync(dir);
    } catch (error) {
      if (hasCode(error, "EEXIST"))
        throw new SandboxError("AlreadyExists", `${id} has an upper already`, { cause: error });
      if (hasCode(error, "ENOSPC", "EDQUOT"))
        throw new SandboxError("StorageFull", "the node's disk is full", { cause: error });
      throw error;
    }
    return upper;
  }

  renameUpper(from: string, id: string, limitBytes: number | undefined): Upper {
    this.checkLimit(limitBytes);
    const root = join(this.#path, id);
    try {
      renameSync(join(this.#path, from), root);
    } catch (error) {
      if (!hasCode(error, "EEXIST", "ENOTEMPTY")) throw error;
      throw new SandboxError("AlreadyExists", `${id} has an upper already`, { cause: error });
    }
    return { upperDir: join(root, "upper"), workDir: join(root, "work") };
  }

  async readUpper(id: string, still?: Still): Promise<UpperReading> {
    const dir = join(this.#path, id, "upper");
    try {
      checkPlain(id, dir);
    } catch (error) {
      if (hasCode(error, "ENOENT")) throw new SandboxError("NotFound", `${id} has no upper`, { cause: error });
      throw error;
    }
    const copyTo = async () => {
      throw new SandboxError("FailedPrecondition", `the upper of ${id} cannot be copied at once`, {
        hint: this.reason,
      });
    };
    await still?.hold();
    return { dir, source: undefined, copyTo, [Symbol.asyncDispose]: async () => still?.letGo() };
  }

  openUpper(id: string): Upper {
    const root = join(this.#path, id);
    return { upperDir: join(root, "upper"), workDir: join(root, "work") };
  }

  async removeUpper(id: string): Promise<void> {
    await removeTree(join(this.#path, id));
  }

  list(): ReadonlySet<string> {
    return new Set(readdirSync(this.#path));
  }

  usage(): undefined {
    return undefined;
  }

  async [Symbol.asyncDispose](): Promise<void> {}
}
