import { spawn } from "node:child_process";
import { once } from "node:events";
import { CliError, hasCode } from "./cli-error.ts";

const SAID_BYTES = 1000;

/**
 * The files of one revision of a repository of this machine as a tar stream, as `git archive` gives them: no submodules, and
 * nothing that is not committed. The repository is its user's own: git obeys its configuration. Throws `CliError`.
 */
export async function* gitArchive(directory: string, revision: string): AsyncGenerator<Uint8Array> {
  if (revision === "" || revision.startsWith("-")) {
    throw new CliError("InvalidArgument", `${JSON.stringify(revision)} names no revision`, {
      hint: "git:DIRECTORY#main",
    });
  }
  // The modes that a checkout has: git's own default lets a group write.
  const words = ["-C", directory, "-c", "tar.umask=0022", "archive", "--format=tar", revision];
  const child = spawn("git", words, {
    stdio: ["ignore", "pipe", "pipe"],
  });
  let said = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    said = `${said}${text}`.slice(0, SAID_BYTES);
  });
  const closed = once(child, "close");
  closed.catch(() => undefined);
  try {
    yield* child.stdout;
    const [code] = await closed;
    if (code === 0) return;
  } catch (error) {
    if (!hasCode(error, "ENOENT")) throw error;
    throw new CliError("FailedPrecondition", "this machine has no git", { cause: error, hint: "apt-get install git" });
  } finally {
    child.kill();
  }
  const reason =
    said
      .trim()
      .split("\n")
      .at(-1)
      ?.replace(/^fatal: /, "") ?? "git failed";
  throw new CliError("InvalidArgument", `git cannot read ${revision} of ${directory}: ${reason}`, {
    hint: "name a repository and a revision that it has, as git:DIRECTORY#main",
  });
}
