import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { makeBundle } from "./peers.ts";

const SSHD = "/usr/sbin/sshd";
const CONTAINER = "dsec-bench-stream";
/** As in the bench of creation: some runtimes refuse hybrid cgroups while the v2 tree is mounted. */
const ALONE = 'mountpoint -q /sys/fs/cgroup/unified && umount /sys/fs/cgroup/unified; exec "$@"';

/** Other ways to have the output of a program elsewhere: `runc exec` into a pipe, and ssh where a server is installed. */
export class StreamPeers implements AsyncDisposable {
  readonly #folder = mkdtempSync(join(tmpdir(), "dsec-stream-peers-"));
  readonly #ssh: readonly string[] | undefined;

  constructor(note: (line: string) => void) {
    this.#ssh = existsSync(SSHD) ? this.#prepareSsh() : undefined;
    if (this.#ssh === undefined) note("ssh: no openssh-server on this machine, not measured");
    makeBundle(join(this.#folder, "bundle"), ["sleep", "3600"]);
    const words = ["run", "--no-new-keyring", "--detach", "--bundle", join(this.#folder, "bundle"), CONTAINER];
    const [program = "", ...rest] = this.#runc(words);
    execFileSync(program, rest, { stdio: "ignore" });
  }

  /** For each peer: runs a program and resolves with the bytes that came out of it here. */
  get programs(): Readonly<Record<string, (argv: readonly string[]) => Promise<number>>> {
    const ssh = this.#ssh;
    return {
      runc_exec: (argv) => countOutput(this.#runc(["exec", CONTAINER, ...argv])),
      ...(ssh === undefined ? {} : { ssh: (argv) => countOutput([...ssh, argv.join(" ")]) }),
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const [program = "", ...rest] = this.#runc(["delete", "--force", CONTAINER]);
    execFileSync(program, rest, { stdio: "ignore" });
    rmSync(this.#folder, { recursive: true });
  }

  #runc(words: readonly string[]): string[] {
    return ["unshare", "--mount", "sh", "-c", ALONE, "sh", "runc", "--root", join(this.#folder, "runc"), ...words];
  }

  /** A server for one connection, on a pipe of the client: no port is opened. */
  #prepareSsh(): string[] {
    const key = join(this.#folder, "key");
    const config = join(this.#folder, "sshd_config");
    execFileSync("ssh-keygen", ["-q", "-t", "ed25519", "-N", "", "-f", key]);
    mkdirSync("/run/sshd", { recursive: true });
    writeFileSync(join(this.#folder, "authorized_keys"), readFileSync(`${key}.pub`), { mode: 0o600 });
    const lines = [
      `HostKey ${key}`,
      `AuthorizedKeysFile ${this.#folder}/authorized_keys`,
      "StrictModes no",
      "UsePAM no",
    ];
    writeFileSync(config, `${lines.join("\n")}\n`);
    const options = [
      `ProxyCommand=${SSHD} -i -f ${config}`,
      "StrictHostKeyChecking=no",
      "UserKnownHostsFile=/dev/null",
    ];
    return ["ssh", "-q", "-T", "-i", key, ...options.flatMap((option) => ["-o", option]), "root@local"];
  }
}

/** Runs a program and counts what it writes to its stdout, a pipe. Throws unless it succeeds. */
export async function countOutput(
  argv: readonly string[],
  env: Readonly<Record<string, string | undefined>> = process.env,
): Promise<number> {
  const [program = "", ...rest] = argv;
  const child = spawn(program, rest, { env, stdio: ["ignore", "pipe", "inherit"] });
  let seen = 0;
  child.stdout.on("data", (bytes: Buffer) => {
    seen += bytes.byteLength;
  });
  const [status] = await once(child, "close");
  if (status !== 0) throw new Error(`${argv.slice(0, 4).join(" ")} ended with ${status}`);
  return seen;
}
