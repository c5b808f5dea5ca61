import { type ChildProcess, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { GuestImage } from "./image.ts";

/** How QEMU runs the guest's processors: by the host's own, or in software, which is ten to thirty times slower. */
export type Accelerator = "kvm" | "tcg";

const ACCELERATORS: Readonly<Record<Accelerator, { readonly words: readonly string[]; readonly readyMs: number }>> = {
  // A KVM that creates machines may still not run them: the time limit tells.
  kvm: { words: ["-accel", "kvm", "-cpu", "host"], readyMs: 30_000 },
  // One thread for all processors: with a thread each, code that Node compiles runs before it is all there, now and then.
  tcg: { words: ["-accel", "tcg,thread=single,tb-size=1024", "-cpu", "max"], readyMs: 300_000 },
};

const MEMORY_MIB = 4096;
const PROCESSORS = 2;

/** The program that runs guests. */
export const QEMU = "/usr/bin/qemu-system-x86_64";
const MACHINE = ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-machine", "q35"];
const KERNEL_WORDS = "console=ttyS0 quiet panic=-1 apparmor=1 security=apparmor";

/** How a line ended, and what it printed on both streams. */
export interface LineResult {
  readonly status: number;
  readonly output: string;
}

/** A running machine whose first program runs lines of shell. Disposing switches it off. */
export interface Guest extends AsyncDisposable {
  readonly accelerator: Accelerator;
  /** Runs one line as root in the root of the tree; one at a time. `hear` gets what it prints as it comes. */
  run(line: string, limitMs: number, hear?: (text: string) => void): Promise<LineResult>;
}

/** Boots a machine on a throw-away view of the image, with KVM where that works. Rejects when no accelerator boots it. */
export async function bootGuest(image: GuestImage, folder: string): Promise<Guest> {
  const failures: string[] = [];
  for (const accelerator of ["kvm", "tcg"] as const) {
    const machine = new Machine(image, folder, accelerator);
    const failure = await machine.ready();
    if (failure === undefined) return machine;
    failures.push(`${accelerator}: ${failure}`);
    await machine[Symbol.asyncDispose]();
  }
  throw new Error(`the guest does not boot: ${failures.join("; ")}`);
}

class Machine implements Guest {
  readonly accelerator: Accelerator;
  readonly #child: ChildProcess;
  readonly #ended: Promise<unknown>;
  readonly #lines: AsyncIterator<string>;
  readonly #console: string;
  #said = "";

  constructor(image: GuestImage, folder: string, accelerator: Accelerator) {
    this.accelerator = accelerator;
    this.#console = join(folder, `console-${accelerator}`);
    const words = [...MACHINE, ...ACCELERATORS[accelerator].words, ...partsOf(image, this.#console)];
    // It ends with this process, however that ends.
    this.#child = spawn("setpriv", ["--pdeathsig", "KILL", "--", QEMU, ...words], { stdio: ["pipe", "pipe", "pipe"] });
    this.#ended = Promise.race([once(this.#child, "close"), once(this.#child, "error")]).catch(() => undefined);
    this.#child.stderr?.on("data", (chunk: Buffer) => {
      this.#said += chunk;
    });
    if (this.#child.stdout === null) throw new Error("QEMU has no output");
    this.#lines = createInterface({ input: this.#child.stdout })[Symbol.asyncIterator]();
  }

  /** Why the guest did not come up; `undefined` when it did. */
  async ready(): Promise<string | undefined> {
    const { readyMs } = ACCELERATORS[this.accelerator];
    const line = await this.#next(readyMs).catch(String);
    return line === "ready" ? undefined : `${line} ${this.#said.trim()} ${this.#consoleEnd()}`.trim();
  }

  async run(line: string, limitMs: number, hear: (text: string) => void = () => {}): Promise<LineResult> {
    const [word, endMs] = [randomUUID(), performance.now() + limitMs];
    this.#child.stdin?.write(`${word} ${line}\n`);
    let output = "";
    for (;;) {
      const text = await this.#next(endMs - performance.now());
      // What does not end its last line has the word behind it.
      const at = text.indexOf(`${word} `);
      const printed = at < 0 ? `${text}\n` : text.slice(0, at);
      if (printed !== "") hear(printed);
      output += printed;
      if (at >= 0) return { status: Number(text.slice(at + word.length + 1)), output };
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#child.kill("SIGKILL");
    await this.#ended;
  }

  async #next(limitMs: number): Promise<string> {
    const { promise, reject } = Promise.withResolvers<never>();
    const timer = setTimeout(() => reject(new Error(`no answer within its time; ${this.#consoleEnd()}`)), limitMs);
    try {
      const { value, done } = await Promise.race([this.#lines.next(), promise]);
      if (done === true) throw new Error(`QEMU has ended; ${this.#said}; ${this.#consoleEnd()}`);
      return value;
    } finally {
      clearTimeout(timer);
    }
  }

  /** What the kernel said last. */
  #consoleEnd(): string {
    try {
      return readFileSync(this.#console, "utf8").slice(-2_000);
    } catch {
      return "no console";
    }
  }
}

function partsOf(image: GuestImage, console: string): readonly string[] {
  return [
    ...["-smp", String(PROCESSORS), "-m", String(MEMORY_MIB)],
    ...["-kernel", image.kernel, "-initrd", image.initrd, "-append", KERNEL_WORDS],
    ...["-drive", `file=${image.disk},format=raw,if=none,id=disk,snapshot=on`, "-device", "virtio-blk-pci,drive=disk"],
    ...["-chardev", "stdio,id=port,signal=off", "-device", "virtio-serial", "-device", "virtserialport,chardev=port"],
    ...["-serial", `file:${console}`],
  ];
}
