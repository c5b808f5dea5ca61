import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  rmSync,
  unlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { hasCode, SandboxError } from "#core/errors.ts";
import type { SandboxId } from "#core/ids.ts";
import { type AgentRecord, parseRecord } from "./handle.ts";

/** A socket's path must fit into `sockaddr_un`, NUL included. */
const MAX_SOCKET_PATH_BYTES = 107;
const LONGEST_ID = 34;

/**
 * What the host keeps of each sandbox while it lives: `<runDir>/sandboxes/<id>/` with the agent's socket and, once it runs,
 * the agent's process in `agent.json`. Nobody but root gets in.
 */
export class RunDirs {
  /** Holds a directory for each sandbox. */
  readonly root: string;

  /** Throws `FailedPrecondition` when sockets below it would have paths too long for the kernel. */
  constructor(runDir: string) {
    this.root = join(runDir, "sandboxes");
    if (Buffer.byteLength(this.root) + LONGEST_ID + "//agent.sock".length > MAX_SOCKET_PATH_BYTES) {
      throw new SandboxError("FailedPrecondition", `the run directory ${runDir} has too long a path for sockets`, {
        hint: "set a shorter runDir, such as /run/dsec",
      });
    }
    mkdirSync(this.root, { recursive: true, mode: 0o700 });
  }

  /** False when there is one already. */
  make(id: SandboxId): boolean {
    try {
      mkdirSync(this.#dir(id), { mode: 0o700 });
      return true;
    } catch (error) {
      if (hasCode(error, "EEXIST")) return false;
      throw error;
    }
  }

  socketPath(id: SandboxId): string {
    return join(this.#dir(id), "agent.sock");
  }

  /** A crash may leave half of it, which reads as nothing. */
  writeAgent(id: SandboxId, agent: AgentRecord): void {
    writeFileSync(this.#agentFile(id), JSON.stringify(agent));
  }

  /** `undefined` when the sandbox never got as far, or is not there. */
  readAgent(id: SandboxId): AgentRecord | undefined {
    try {
      return parseRecord(readFileSync(this.#agentFile(id), "utf8"));
    } catch (error) {
      if (hasCode(error, "ENOENT")) return undefined;
      throw error;
    }
  }

  /** Safe twice, and for unknown ids. */
  remove(id: SandboxId): void {
    // What is always there goes one by one, a fraction of what walking the directory costs.
    for (const file of [this.socketPath(id), this.#agentFile(id)]) unlinkIfThere(file);
    try {
      rmdirSync(this.#dir(id));
    } catch (error) {
      if (!hasCode(error, "ENOENT", "ENOTEMPTY")) throw error;
      rmSync(this.#dir(id), { recursive: true, force: true });
    }
  }

  hasSocket(id: SandboxId): boolean {
    return existsSync(this.socketPath(id));
  }

  list(): ReadonlySet<string> {
    return new Set(readdirSync(this.root));
  }

  #dir(id: SandboxId): string {
    return join(this.root, id);
  }

  #agentFile(id: SandboxId): string {
    return join(this.#dir(id), "agent.json");
  }
}

function unlinkIfThere(file: string): void {
  try {
    unlinkSync(file);
  } catch (error) {
    if (!hasCode(error, "ENOENT")) throw error;
  }
}
