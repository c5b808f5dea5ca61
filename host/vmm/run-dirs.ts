import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { hasCode, SandboxError } from "#core/errors.ts";
import type { SandboxId } from "#core/ids.ts";
import { parseProcess } from "./process-record.ts";
import type { MachineProcess } from "./vmm.ts";

/** A socket's path must fit into `sockaddr_un`, NUL included. */
const MAX_SOCKET_PATH_BYTES = 107;
const LONGEST_ID = 34;
const LONGEST_SOCKET = "//console.sock";

/** What the host keeps of each machine of a kind while it lives: `<runDir>/<kind>/<id>/`, and in it, once it runs, its process in `vmm.json`. */
export class RunDirs {
  readonly root: string;

  /** Throws `FailedPrecondition` when sockets below it would have paths too long for the kernel. */
  constructor(runDir: string, kind: string) {
    this.root = join(runDir, kind);
    if (Buffer.byteLength(this.root) + LONGEST_ID + LONGEST_SOCKET.length > MAX_SOCKET_PATH_BYTES) {
      throw new SandboxError("FailedPrecondition", `the run directory ${runDir} has too long a path for sockets`, {
        hint: "set a shorter runDir, such as /run/dsec",
      });
    }
    mkdirSync(this.root, { recursive: true, mode: 0o700 });
  }

  /** False when there is one already. */
  make(id: SandboxId): boolean {
    try {
      mkdirSync(this.dir(id), { mode: 0o700 });
      return true;
    } catch (error) {
      if (hasCode(error, "EEXIST")) return false;
      throw error;
    }
  }

  dir(id: SandboxId): string {
    return join(this.root, id);
  }

  /** A crash may leave half of it, which reads as nothing. */
  writeProcess(id: SandboxId, process: MachineProcess): void {
    writeFileSync(this.#file(id), JSON.stringify(process));
  }

  /** `undefined` when the machine never got as far, or is not there. */
  readProcess(id: SandboxId): MachineProcess | undefined {
    try {
      return parseProcess(readFileSync(this.#file(id), "utf8"));
    } catch (error) {
      if (hasCode(error, "ENOENT")) return undefined;
      throw error;
    }
  }

  /** Safe twice, and for unknown ids. */
  remove(id: SandboxId): void {
    rmSync(this.dir(id), { recursive: true, force: true });
  }

  list(): ReadonlySet<string> {
    return new Set(readdirSync(this.root));
  }

  #file(id: SandboxId): string {
    return join(this.dir(id), "vmm.json");
  }
}
