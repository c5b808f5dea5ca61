import { resolve } from "node:path";
import { SandboxError } from "#core/errors.ts";
import { makeAgentPackage } from "#images/vm-image/agent-package.ts";
import { built } from "./programs.ts";
import { VERSION } from "./version.ts";

/** Makes the package in the file that is named. Throws `InvalidArgument` for other words, and for a file that cannot be. */
export async function agentPackage(argv: readonly string[], to: { say(line: string): void }): Promise<number> {
  const [file, ...more] = argv;
  if (file === undefined || file.startsWith("-") || more.length > 0) {
    throw new SandboxError("InvalidArgument", "agent-package takes the name of one file", {
      hint: "dsec agent-package dsec-agent.deb",
    });
  }
  try {
    await makeAgentPackage({ agent: built("dsec-agent"), version: VERSION, target: resolve(file) });
  } catch (error) {
    if (error instanceof SandboxError || !(error instanceof Error)) throw error;
    throw new SandboxError("InvalidArgument", `${file} cannot be made: ${error.message}`, { cause: error });
  }
  to.say(`${file} is made; in the system: apt-get install ./${file.split("/").at(-1)}`);
  return 0;
}
