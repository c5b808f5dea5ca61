import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface, type Interface } from "node:readline";

/** The programs that we compare creation with. */
export const PEERS = ["runc", "crun"] as const;
export type Peer = (typeof PEERS)[number];

/**
 * Runs of one peer take their time here: a shell in a mount namespace of its own, because crun refuses hybrid cgroups while
 * the v2 tree is mounted. The shell measures, so that only its own fork counts on top of the peer.
 */
const RUNNER = `
mountpoint -q /sys/fs/cgroup/unified && umount /sys/fs/cgroup/unified
while read -r peer count id; do
  options=; [ "$peer" != runc ] || options=--no-new-keyring
  for ((run = 0; run < count; run++)); do
    from=\${EPOCHREALTIME/./}
    if ! "$peer" --root "$STATE/$peer" run $options --bundle "$BUNDLE" "$id-$run" </dev/null >&2; then
      echo failed
      continue 2
    fi
    to=\${EPOCHREALTIME/./}
    echo $((to - from))
  done
done
`;

/** A bundle whose root file system is a static busybox, and a runner for every peer. Disposing removes both. */
export class Peers implements AsyncDisposable {
  readonly #folder: string;
  readonly #shell: ChildProcess;
  readonly #lines: AsyncIterator<string>;
  readonly #reader: Interface;
  #stderr = "";

  constructor() {
    this.#folder = mkdtempSync(join(tmpdir(), "dsec-peers-"));
    makeBundle(join(this.#folder, "bundle"), ["/bin/true"]);
    const env = { ...process.env, STATE: this.#folder, BUNDLE: join(this.#folder, "bundle") };
    this.#shell = spawn("unshare", ["--mount", "bash", "-c", RUNNER], { env, stdio: ["pipe", "pipe", "pipe"] });
    if (this.#shell.stdout === null) throw new Error("the runner has no output");
    this.#reader = createInterface({ input: this.#shell.stdout });
    this.#lines = this.#reader[Symbol.asyncIterator]();
    this.#shell.stderr?.on("data", (chunk: Buffer) => {
      this.#stderr = `${this.#stderr}${chunk}`.slice(-2_000);
    });
  }

  /** The root file system that the peers run in. */
  get rootfs(): string {
    return join(this.#folder, "bundle", "rootfs");
  }

  /** Milliseconds of each of `count` runs of /bin/true, clean-up of the container included. */
  async run(peer: Peer, count: number): Promise<number[]> {
    this.#shell.stdin?.write(`${peer} ${count} bench-${randomBytes(6).toString("hex")}\n`);
    const times: number[] = [];
    while (times.length < count) {
      const { value, done } = await this.#lines.next();
      if (done === true || value === "failed") throw new Error(`${peer} does not run here: ${this.#stderr}`);
      times.push(Number(value) / 1_000);
    }
    return times;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const ended = new Promise((resolve) => this.#shell.once("exit", resolve));
    this.#shell.stdin?.end();
    await ended;
    this.#reader.close();
    rmSync(this.#folder, { recursive: true });
  }
}

/** A bundle of the runtimes: a root file system of one static program, and the command that runs in it. */
export function makeBundle(bundle: string, args: readonly string[]): void {
  makeBusyboxTree(join(bundle, "rootfs"));
  execFileSync("runc", ["spec", "--bundle", bundle]);
  const file = join(bundle, "config.json");
  const config = JSON.parse(readFileSync(file, "utf8"));
  // A release's runc may write a version that its crun does not know yet; there is nothing newer in it.
  config.ociVersion = "1.0.2";
  config.process = { ...config.process, args, terminal: false };
  writeFileSync(file, JSON.stringify(config));
}

/** Makes a root file system of one static program. */
export function makeBusyboxTree(rootfs: string): void {
  for (const name of ["bin", "dev", "proc", "sys", "tmp", "etc"]) mkdirSync(join(rootfs, name), { recursive: true });
  const busybox = execFileSync("sh", ["-c", "command -v busybox"], { encoding: "utf8" }).trim();
  copyFileSync(busybox, join(rootfs, "bin/busybox"));
  for (const name of ["sh", "true", "sleep", "dd"]) symlinkSync("busybox", join(rootfs, "bin", name));
}
