import assert from "node:assert/strict";
import { test } from "node:test";
import type { MachineSpec } from "../vmm.ts";
import { type QemuParts, qemuWords } from "./words.ts";

const SPEC: MachineSpec = {
  accelerator: "tcg",
  processors: 1,
  memory: { sizeMiB: 128 },
  kernel: "/kernel",
  initramfs: "/initramfs",
  disks: [{ serial: "upper", file: "/disk", access: "write" }],
  devices: undefined,
};
const PARTS: QemuParts = {
  uid: 1_000_000,
  emptyDir: "/empty",
  monitor: "/monitor",
  control: "/control",
  agent: "/agent",
  devicesIn: undefined,
};

/** The value that follows a word. */
function after(words: readonly string[], word: string): string | undefined {
  return words[words.indexOf(word) + 1];
}

test("a machine takes on a user of its own, a seccomp filter and an empty root, and has no network", () => {
  const words = qemuWords(SPEC, PARTS);
  assert.equal(after(words, "-runas"), "1000000:1000000");
  assert.equal(after(words, "-chroot"), "/empty");
  assert.match(after(words, "-sandbox") ?? "", /^on,.*spawn=deny/);
  assert.ok(!words.some((word) => /netdev|virtio-net|e1000/.test(word)));
});

test("a path cannot end a value: its commas are doubled", () => {
  const words = qemuWords({ ...SPEC, disks: [{ serial: "a", file: "/x,readonly=off", access: "read" }] }, PARTS);
  assert.ok(words.some((word) => word.includes("read-only=on") && word.endsWith("file.filename=/x,,readonly=off")));
});

test("a machine that goes on has the devices of the one that was saved", () => {
  const [saved, continued] = [qemuWords(SPEC, PARTS), qemuWords(SPEC, { ...PARTS, devicesIn: 3 })];
  assert.equal(after(continued, "-incoming"), "fd:3");
  const devices = (words: readonly string[]) => words.filter((_, at) => words[at - 1] === "-device");
  assert.deepEqual(devices(continued), devices(saved));
});
