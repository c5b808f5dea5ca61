import type { NodeComputers } from "#core/computers.ts";
import { SandboxError } from "#core/errors.ts";

/** The part of a node about computers, of one that has none. */
export class NoComputers implements NodeComputers {
  async computerStatus(): Promise<never> {
    throw noComputer();
  }

  async powerComputer(): Promise<never> {
    throw noComputer();
  }

  async takeScreenshot(): Promise<never> {
    throw noComputer();
  }

  async sendInput(): Promise<never> {
    throw noComputer();
  }

  openChannel(): never {
    throw noComputer();
  }
}

function noComputer(): SandboxError {
  return new SandboxError("FailedPrecondition", "the test node has no computers");
}
