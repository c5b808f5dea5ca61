import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { Sandbox } from "#sdk";
import { QEMU } from "../host-vm/guest.ts";
import { startNode, type TestNode } from "../support/node.ts";
import { output } from "../support/sandbox.ts";
import { waitUntil } from "../support/wait.ts";
import { decodePng, pointsOf } from "./png.ts";

const skip = existsSync(QEMU) ? false : `${QEMU} is missing: ./dsec test fullvm installs it`;
/** Kept for the next run: kernels. */
const GUEST_DIR = join(import.meta.dirname, "../../.build/guest");
/** A whole Debian starts within minutes where processors are emulated, and within many on a busy machine. */
const START_MS = 20 * 60_000;
/** What a person does shows within this. */
const SHOW_MS = 5 * 60_000;
const BUILD_MS = 20 * 60_000;
const WHITE = 0xffffff;
/** Of the desktop, where no window is. */
const BACKGROUND = 0x2b4a6f;
const SCREEN = { width: 1024, height: 768 } as const;
/** Inside the terminal that is open at the start. */
const TERMINAL = { x: 60, y: 90, width: 750, height: 400 } as const;
/** The browser's button in the task bar. */
const BROWSER_BUTTON = { x: 144, y: 755 } as const;

describe("systems that are built of Debian's packages", { timeout: 90 * 60_000, skip }, () => {
  let node: TestNode;
  before(async () => {
    node = await startNode({ words: ["--accelerator=tcg", `--guest-dir=${GUEST_DIR}`] });
  });
  after(() => node[Symbol.asyncDispose]());

  async function created(base: string, memoryMiB: number): Promise<Sandbox> {
    const sandbox = await node.client.sandboxes.create({ base, resources: { memoryMiB, cpus: 2 } });
    await waitUntil("the system starts", START_MS, () => succeeds(sandbox, "true"));
    return sandbox;
  }

  async function succeeds(sandbox: Sandbox, line: string): Promise<boolean> {
    return await sandbox.run(line).then(
      ({ ok }) => ok,
      () => false,
    );
  }

  test("a Debian has the agent, cgroup v2, AppArmor, and a prompt on its console and on its screen", async () => {
    await node.client.artifacts.build({ name: "debian-vm", kind: "vm-image" }, { timeoutMs: BUILD_MS });
    await using sandbox = await created("debian-vm", 512);
    assert.match(await output(sandbox, "uname -r"), /cloud/);
    assert.equal(await output(sandbox, "stat -f -c %T /sys/fs/cgroup"), "cgroup2fs");
    assert.equal(await output(sandbox, "cat /sys/module/apparmor/parameters/enabled"), "Y");
    assert.equal(await output(sandbox, "cat /proc/1/comm; id -un; id -u user"), "systemd\nroot\n1000");
    // Each is a login of its own: what is not there after a system has started never comes.
    const isStarted = "systemctl is-system-running | grep -qxE 'running|degraded'";
    await waitUntil("it has started", START_MS, () => succeeds(sandbox, isStarted));
    assert.equal(await output(sandbox, "systemctl --failed --no-legend"), "");
    const logins = "ps -eo tty=,comm= | grep -cE '^(ttyS0|tty1) +bash'";
    await waitUntil("both have a shell", SHOW_MS, async () => (await output(sandbox, `${logins} || :`)) === "2");
    using console = await sandbox.computer.console();
    await console.write("echo $((6*7)) >/root/console\r");
    await waitUntil("the console's shell did it", SHOW_MS, () => succeeds(sandbox, "grep -qx 42 /root/console"));
    await sandbox.computer.type("echo $((6*8)) >/root/screen\n");
    await waitUntil("the screen's shell did it", SHOW_MS, () => succeeds(sandbox, "grep -qx 48 /root/screen"));
  });

  /** The browser's window covers the desktop in the copy, and not in the original. */
  async function copyHearsItsOwnMouse(original: Sandbox): Promise<void> {
    const { forks } = await original.fork({ count: 1 });
    const [made] = forks;
    assert.ok(made !== undefined && "sandbox" in made, JSON.stringify(made));
    await using copy = made.sandbox;
    const background = async ({ computer }: Sandbox) =>
      pointsOf(decodePng((await computer.screenshot()).png), BACKGROUND, { x: 0, y: 0, ...SCREEN });
    await copy.computer.click(BROWSER_BUTTON);
    await waitUntil("the copy's window covers its desktop", SHOW_MS, async () => (await background(copy)) < 250_000);
    assert.ok((await background(original)) >= 250_000, "the original's desktop is as it was");
    assert.equal(await succeeds(original, "pgrep -x dillo"), false);
    assert.equal(await output(copy, "hostname"), copy.id);
  }

  test("a desktop shows, hears its keyboard and its mouse, and what they do is done", async () => {
    const request = { name: "desktop", kind: "vm-image", desktop: true } as const;
    await node.client.artifacts.build(request, { timeoutMs: BUILD_MS });
    await using sandbox = await created("desktop", 768);
    const { computer } = sandbox;
    const shown = async () => decodePng((await computer.screenshot()).png);
    const isDesktop = async () => {
      const screen = await shown();
      if (screen.width !== SCREEN.width || screen.height !== SCREEN.height) return false;
      const whole = pointsOf(screen, BACKGROUND, { x: 0, y: 0, ...SCREEN }) > 100_000;
      // The pointer may be in it.
      return whole && pointsOf(screen, WHITE, TERMINAL) > TERMINAL.width * TERMINAL.height - 100;
    };
    await waitUntil("the desktop and its terminal show", START_MS, isDesktop);
    // Its clock goes on all the same.
    const still = await computer.screenshot({ settledMs: 2_000, waitMs: 50_000 });
    assert.equal(still.settled, true);
    await computer.click({ x: 400, y: 300 });
    await computer.type("echo $((6*7)) | tee typed; seq 9; id -un >>typed\n");
    await waitUntil("the terminal did it", SHOW_MS, () => succeeds(sandbox, "grep -qx user /home/user/typed"));
    assert.equal(await output(sandbox, "cat /home/user/typed"), "42\nuser");
    await waitUntil("it shows", SHOW_MS, async () => {
      return pointsOf(await shown(), WHITE, TERMINAL) < TERMINAL.width * TERMINAL.height - 500;
    });
    await copyHearsItsOwnMouse(sandbox);
    await computer.click(BROWSER_BUTTON);
    await waitUntil("the browser runs", SHOW_MS, () => succeeds(sandbox, "pgrep -x dillo"));
    await waitUntil("its window covers the desktop", SHOW_MS, async () => {
      return pointsOf(await shown(), BACKGROUND, { x: 0, y: 0, ...SCREEN }) < 250_000;
    });
    await computer.press(["alt", "f4"]);
    await waitUntil("it is closed by the keyboard", SHOW_MS, async () => !(await succeeds(sandbox, "pgrep -x dillo")));
  });
});
