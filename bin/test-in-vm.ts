import { SandboxError } from "#core/errors.ts";
import { runTests } from "./test.ts";

/** The word that asks for it. */
const IN_VM = "--in-vm";
/** What the tests in machines read: words of the tests to be run inside, in place of their usual ones. */
const INSIDE = "DSEC_TESTS_IN_VM";
const MACHINE = /^debian-\d+$/;
const USUAL_MACHINE = "debian-12";

/** Which test files boot machines, and what runs inside each; empty: what is usual there. */
export interface InVm {
  readonly files: readonly string[];
  readonly inside: readonly string[];
}

/** Of words behind `dsec test`: machines by their names, and words of tests. Throws `InvalidArgument` for options. */
export function inVm(words: readonly string[]): InVm {
  const others = words.filter((word) => word !== IN_VM);
  const option = others.find((word) => word.startsWith("-"));
  if (option !== undefined) throw new SandboxError("InvalidArgument", `dsec test has no option ${option}`);
  const machines = others.filter((word) => MACHINE.test(word));
  return {
    files: (machines.length === 0 ? [USUAL_MACHINE] : machines).map((name) => `tests/host-vm/${name}`),
    inside: others.filter((word) => !MACHINE.test(word)),
  };
}

/** Runs tests of the tree inside a machine of its own: `./dsec test --in-vm [debian-12|debian-13]… [WORD…]`. */
export async function runTestsInVm(words: readonly string[]): Promise<number> {
  const { files, inside } = inVm(words);
  process.env[INSIDE] = inside.join(" ");
  return await runTests(files);
}
