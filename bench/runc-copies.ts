import { execFile, execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { makeBusyboxTree } from "./peers.ts";

const exec = promisify(execFile);

/** Files through the pipes of a container of `runc`, as `docker exec` moves them: no digest, no atomic replacement. */
export class RuncCopies implements Disposable {
  readonly #folder = mkdtempSync(join(tmpdir(), "dsec-runc-"));

  constructor() {
    const bundle = this.#bundle;
    makeBusyboxTree(join(bundle, "rootfs"));
    mkdirSync(join(bundle, "rootfs/root"));
    execFileSync("runc", ["spec", "--bundle", bundle]);
  }

  /** Writes a file of zeros in the container. */
  up(sizeMiB: number): Promise<void> {
    return this.#run(["sh", "-c", "exec /bin/busybox cat >/root/file"], `head -c ${sizeMiB}M /dev/zero | `, "");
  }

  /** Reads it back. */
  down(): Promise<void> {
    return this.#run(["/bin/busybox", "cat", "/root/file"], "", " | cat >/dev/null");
  }

  [Symbol.dispose](): void {
    rmSync(this.#folder, { recursive: true });
  }

  get #bundle(): string {
    return join(this.#folder, "bundle");
  }

  async #run(args: readonly string[], before: string, after: string): Promise<void> {
    const file = join(this.#bundle, "config.json");
    const config = JSON.parse(readFileSync(file, "utf8"));
    const root = { ...config.root, readonly: false };
    writeFileSync(file, JSON.stringify({ ...config, root, process: { ...config.process, args, terminal: false } }));
    const id = `bench-${randomBytes(6).toString("hex")}`;
    const runc = `runc --root '${this.#folder}/state' run --no-new-keyring --bundle '${this.#bundle}' ${id}`;
    await exec("bash", ["-o", "pipefail", "-c", `${before}${runc}${after}`]);
  }
}
