import type { CommandView } from "#api/index.ts";

/** One stream of a command that has ended. */
export interface Collected {
  readonly bytes: Uint8Array;
  /** False when bytes were dropped to hold the cap. */
  readonly whole: boolean;
}

/** How a command ended and what it wrote. */
export class Result {
  readonly status: NonNullable<CommandView["status"]>;
  /** The bytes that were kept, in order. */
  readonly stdout: Uint8Array;
  readonly stderr: Uint8Array;
  /** True when bytes in the middle of a stream were dropped to hold its cap. */
  readonly truncated: boolean;

  /** Made by `Sandbox.run` and `Command.result`. */
  constructor(status: NonNullable<CommandView["status"]>, stdout: Collected, stderr: Collected) {
    this.status = status;
    this.stdout = stdout.bytes;
    this.stderr = stderr.bytes;
    this.truncated = !stdout.whole || !stderr.whole;
  }

  /** True exactly when the command exited by itself with code 0. */
  get ok(): boolean {
    return this.status.cause === "exited" && this.status.code === 0;
  }

  /** stdout as UTF-8; bytes that are not become U+FFFD. */
  get stdoutText(): string {
    return new TextDecoder().decode(this.stdout);
  }

  /** stderr as UTF-8; bytes that are not become U+FFFD. */
  get stderrText(): string {
    return new TextDecoder().decode(this.stderr);
  }
}
