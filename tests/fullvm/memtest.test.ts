import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { TestNode } from "../support/node.ts";
import { refused } from "../support/sandbox.ts";
import { waitUntil } from "../support/wait.ts";
import {
  createComputer,
  described,
  MEMTEST,
  MEMTEST_IMAGE,
  memtestShows,
  pictureOtherThan,
  startNodeWithMemtest,
} from "./screen.ts";

const skip = existsSync(MEMTEST) ? false : `${MEMTEST} is missing: ./dsec test fullvm installs it`;

describe("a full VM that is not Linux and carries no agent", { timeout: 900_000, skip }, () => {
  let node: TestNode;
  before(async () => {
    node = await startNodeWithMemtest();
  });
  after(() => node[Symbol.asyncDispose]());

  const monitorOf = (id: string) =>
    JSON.parse(readFileSync(join(node.runDir, "computers", id, "vmm.json"), "utf8")) as { pid: number };

  test("starts from its image, shows its screen, and hears its keyboard", async () => {
    await using sandbox = await createComputer(node);
    assert.deepEqual(
      [sandbox.view?.backend, sandbox.view?.computer],
      ["vm", { firmware: "bios", devices: "emulated" }],
    );
    await memtestShows(sandbox);
    const info = await sandbox.computer.info();
    assert.deepEqual(info, { power: "on", accelerator: "tcg", screen: { width: 720, height: 400 } });
    // The menu stands still over what goes on below it.
    await sandbox.computer.press(["f1"]);
    await sandbox.computer.press(["f1"]);
    const menu = await sandbox.computer.screenshot({ settledMs: 1_000, waitMs: 50_000 });
    assert.ok(menu.png.length > 0);
    await sandbox.computer.input([
      { type: "move", to: { x: 10, y: 10 } },
      { type: "click", at: { x: 719, y: 399 } },
    ]);
  });

  test("calls that need an agent say so at once, by a typed error", async () => {
    await using sandbox = await createComputer(node);
    await refused(sandbox.run("true"), "FailedPrecondition", /no agent/);
    await refused(sandbox.files.write("/x", "y"), "FailedPrecondition", /no agent/);
    await refused(sandbox.ports.list(), "FailedPrecondition", /no agent/);
    await refused(sandbox.session(), "FailedPrecondition", /no agent/);
  });

  test("is switched off and on, and reset; off, its screen stays and nothing goes on", async () => {
    await using sandbox = await createComputer(node);
    const { computer } = sandbox;
    await memtestShows(sandbox);
    await computer.power("off");
    await computer.power("off");
    assert.equal((await computer.info()).power, "off");
    const still = await computer.screenshot({ settledMs: 500 });
    assert.equal(still.settled, true);
    await computer.power("on");
    await computer.power("on");
    assert.equal((await computer.info()).power, "on");
    await pictureOtherThan(sandbox, described(still.png).digest);
    await computer.power("reset");
    await memtestShows(sandbox);
    // Nobody listens to the button here.
    await computer.power("press");
    assert.equal((await computer.info()).power, "on");
  });

  test("its display speaks RFB to more than one viewer, its console is a connection", async () => {
    await using sandbox = await createComputer(node);
    const viewers = await Promise.all([sandbox.computer.display(), sandbox.computer.display()]);
    for (const viewer of viewers) {
      let said = "";
      for await (const bytes of viewer) {
        said += Buffer.from(bytes).toString("latin1");
        if (said.length >= 12) break;
      }
      assert.equal(said, "RFB 003.008\n");
      viewer[Symbol.dispose]();
    }
    using console = await sandbox.computer.console();
    await console.write("nobody reads this\r");
    // A plain call is told what is missing.
    const response = await fetch(`${node.url}/v1/sandboxes/${sandbox.id}/display`, {
      headers: { authorization: `Bearer ${node.token}` },
    });
    assert.equal(response.status, 400);
    assert.match(await response.text(), /WebSocket/);
  });

  test("input that cannot be is refused by name", async () => {
    await using sandbox = await createComputer(node);
    await refused(sandbox.computer.type("caf\u00e9"), "InvalidArgument", /U\+00E9/);
    await refused(sandbox.computer.press(["hyper"]), "InvalidArgument", /hyper/);
    await refused(sandbox.computer.click({ x: 60_000, y: 1 }), "InvalidArgument", /not on the screen/);
  });

  test("its monitor is a user of its own in a cgroup of its own, with an empty root, no network and no rights", async () => {
    await using sandbox = await createComputer(node);
    const { pid } = monitorOf(sandbox.id);
    const status = readFileSync(`/proc/${pid}/status`, "utf8");
    const field = (name: string) => new RegExp(`^${name}:\\s*(\\S+)`, "m").exec(status)?.[1] ?? "";
    assert.ok(Number(field("Uid")) >= 0x0800_0000);
    for (const set of ["CapPrm", "CapEff"]) assert.equal(BigInt(`0x${field(set)}`), 0n, set);
    assert.deepEqual([field("NoNewPrivs"), field("Seccomp")], ["1", "2"]);
    assert.match(readlinkSync(`/proc/${pid}/root`), /\/empty$/);
    for (const name of ["net", "mnt", "ipc", "uts"]) {
      assert.notEqual(readlinkSync(`/proc/${pid}/ns/${name}`), readlinkSync(`/proc/self/ns/${name}`), name);
    }
    assert.match(readFileSync(`/proc/${pid}/cgroup`, "utf8"), new RegExp(`-full/${sandbox.id}\n`));
  });

  for (const propagation of ["shared", "private"]) {
    test(`it keeps nothing of the host busy: what is unmounted there is free, where mounts are ${propagation}`, async () => {
      const dir = mkdtempSync(join(tmpdir(), "dsec-mounts-"));
      const [place, image] = [join(dir, "it's a, place"), join(dir, "image")];
      execFileSync("mount", ["-t", "tmpfs", "none", dir]);
      try {
        execFileSync("mount", [`--make-${propagation}`, dir]);
        mkdirSync(place);
        writeFileSync(image, "");
        truncateSync(image, 4 * 1024 * 1024);
        execFileSync("mke2fs", ["-q", image]);
        execFileSync("mount", ["-o", "loop", image, place]);
        await using sandbox = await createComputer(node);
        execFileSync("umount", [place]);
        await waitUntil(
          "its device is free",
          60_000,
          () => execFileSync("losetup", ["-j", image], { encoding: "utf8" }) === "",
        );
        assert.equal((await sandbox.computer.info()).power, "on");
      } finally {
        execFileSync("umount", ["-R", "-l", dir]);
        rmSync(dir, { recursive: true });
      }
    });
  }

  test("what it cannot enforce is refused by name, and leaves nothing", async () => {
    const cases = [
      [{ resources: { swapMiB: 64 } }, "FailedPrecondition", /swap/],
      [{ resources: { pids: 10 } }, "FailedPrecondition", /pids/],
      [{ resources: { memoryMiB: 8 } }, "InvalidArgument", /memoryMiB/],
      [{ resources: { cpus: 500 } }, "InvalidArgument", /cpus|processors/],
      [{ resources: { cpus: 0 } }, "InvalidArgument", /cpus/],
      [{ env: { A: "b" } }, "FailedPrecondition", /env/],
      [{ user: "nobody" }, "FailedPrecondition", /user/],
      [{ hostname: "name" }, "FailedPrecondition", /hostname/],
      [{ rlimits: { core: { soft: 0, hard: 0 } } }, "FailedPrecondition", /rlimits/],
      [{ backend: "container" }, "InvalidArgument", /vm-image/],
      [{ workspace: MEMTEST_IMAGE }, "InvalidArgument", /workspace/],
      [{ resources: { memoryMiB: 1_000_000 } }, "NodeFull", /./],
    ] as const;
    for (const [request, kind, message] of cases) await refused(createComputer(node, request), kind, message);
    assert.deepEqual(await Array.fromAsync(node.client.sandboxes.list()), []);
    assert.deepEqual(readdirSync(join(node.runDir, "computers")), []);
  });

  test("a monitor that is killed: failed with a reason, compute freed, removed by its id", async () => {
    await using sandbox = await createComputer(node);
    process.kill(monitorOf(sandbox.id).pid, "SIGKILL");
    await waitUntil("the loss shows", 30_000, async () => (await sandbox.info()).state === "failed");
    assert.ok((await sandbox.info()).reason);
    await refused(sandbox.computer.screenshot(), "FailedPrecondition");
    const kept = await node.client.nodes.resources(node.marks.edge);
    assert.deepEqual(
      kept.filter(({ surplus }) => surplus.length > 0),
      [],
    );
  });

  test("a node that is killed: computers are adopted as they are", async () => {
    const { id } = await createComputer(node);
    const { pid } = monitorOf(id);
    await node.kill();
    await node.start();
    const again = node.client.sandboxes.use(id);
    assert.equal((await again.info()).state, "ready");
    assert.equal(monitorOf(id).pid, pid);
    await memtestShows(again);
    await again.computer.press(["f1"]);
    await again.remove();
    assert.ok(!existsSync(join(node.runDir, "computers", id)));
  });

  test("has a disk beside its CD when it asks for one, and starts by UEFI", async () => {
    await using sandbox = await createComputer(node, {
      resources: { memoryMiB: 128, diskMiB: 64 },
      computer: { firmware: "uefi", devices: "virtio" },
    });
    assert.deepEqual(sandbox.view?.computer, { firmware: "uefi", devices: "virtio" });
    assert.deepEqual(readdirSync(join(node.runDir, "computer-disks", "volume", sandbox.id, "upper")).sort(), [
      "disk.qcow2",
      "variables",
    ]);
    await pictureOtherThan(sandbox, described((await sandbox.computer.screenshot()).png).digest);
  });

  test("a disk that holds no system never starts: its screen says so, and it is removed as any", async () => {
    const disk = Buffer.alloc(1024 * 1024);
    disk.writeUInt16LE(0xaa55, 510);
    randomBytes(400).copy(disk);
    // An endless loop, where a boot loader would be.
    disk.writeUInt16LE(0xfeeb, 0);
    await node.client.artifacts.importVmImage(disk, { name: "empty" });
    await using sandbox = await node.client.sandboxes.create({
      base: "empty",
      resources: { memoryMiB: 32, diskMiB: 4 },
    });
    assert.equal((await sandbox.computer.info()).power, "on");
  });

  test("images that are none are refused before anything runs on them", async () => {
    const { artifacts } = node.client;
    await refused(artifacts.importVmImage(Buffer.from("no image"), { name: "none" }), "InvalidArgument", /too small/);
    await refused(artifacts.importVmImage(randomBytes(4096), { name: "none" }), "InvalidArgument", /no image/);
    await refused(artifacts.info("none"), "NotFound");
  });
});
