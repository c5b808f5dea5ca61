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
  regions: [],
  devices: undefined,
  lender: undefined,
};
const PARTS: QemuParts = {
  uid: 1_000_000,
  emptyDir: "/empty",
  monitor: "/monitor",
  control: "/control",
  agent: "/agent",
  devicesIn: undefined,
  memory: undefined,
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

test("memory that is lent has a name that leads nowhere; its machine tells what is free, and may clear what it frees without harm", () => {
  const memory = { sizeMiB: 128, file: { path: "/template", access: "private" } } as const;
  const words = qemuWords({ ...SPEC, memory, lender: "/lender" }, { ...PARTS, memory: 4 });
  assert.equal(after(words, "-object"), "memory-backend-file,id=memory,size=128M,mem-path=/proc/dsec-lent-4,share=off");
  assert.ok(!words.some((word) => word.includes("/template")));
  assert.ok(words.some((word) => /^virtio-balloon-pci,free-page-reporting=on,page-poison=off/.test(word)));
  assert.ok(!qemuWords({ ...SPEC, memory }, PARTS).some((word) => word.includes("balloon")));
});
