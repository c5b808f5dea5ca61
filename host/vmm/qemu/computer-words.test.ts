import assert from "node:assert/strict";
import { test } from "node:test";
import type { ComputerSpec } from "../computer.ts";
import { type ComputerParts, computerWords } from "./computer-words.ts";

const SPEC: ComputerSpec = {
  accelerator: "tcg",
  processors: 2,
  memoryMiB: 256,
  firmware: "bios",
  devices: "virtio",
  disk: { file: "/upper/disk", base: "/layers/disk" },
  cdrom: undefined,
  variables: undefined,
  kernel: undefined,
  saved: undefined,
};
const PARTS: ComputerParts = {
  uid: 1_000_000,
  rootDir: "/empty",
  monitor: "/monitor",
  display: "/display",
  console: "/console",
  control: "/control",
  agent: "/agent",
  devicesIn: undefined,
};

/** The value that follows a word. */
function after(words: readonly string[], word: string): string | undefined {
  return words[words.indexOf(word) + 1];
}

test("a computer takes on a user of its own, a seccomp filter and an empty root, and has no network and no sound", () => {
  for (const devices of ["virtio", "emulated"] as const) {
    const words = computerWords({ ...SPEC, devices }, PARTS);
    assert.equal(after(words, "-runas"), "1000000:1000000");
    assert.equal(after(words, "-chroot"), "/empty");
    assert.match(after(words, "-sandbox") ?? "", /^on,.*spawn=deny/);
    assert.ok(words.includes("-nodefaults"));
    assert.ok(!words.some((word) => /netdev|virtio-net|e1000|audio|hda|ac97/i.test(word)));
  }
});

test("what lies below a disk is said by us: a disk that names another file is not believed", () => {
  const nodes = (words: readonly string[]) => words.filter((_, at) => words[at - 1] === "-blockdev");
  const [base = "", disk = ""] = nodes(computerWords(SPEC, PARTS));
  assert.match(base, /^driver=raw,node-name=base,read-only=on,.*filename=\/layers\/disk$/);
  assert.match(disk, /^driver=qcow2,node-name=disk,.*backing=base,.*filename=\/upper\/disk$/);
  const [blank = ""] = nodes(computerWords({ ...SPEC, disk: { file: "/upper/disk", base: undefined } }, PARTS));
  assert.match(blank, /backing=,/);
});

test("each profile has disks, a pointer and a machine that its systems know; UEFI has its own memory", () => {
  const virtio = computerWords(SPEC, PARTS).join(" ");
  assert.match(virtio, /q35.*virtio-blk-pci.*/);
  const emulated = computerWords({ ...SPEC, devices: "emulated", cdrom: "/layers/cdrom" }, PARTS).join(" ");
  assert.match(emulated, /-machine pc,/);
  assert.ok(!emulated.includes("virtio"));
  for (const words of [virtio, emulated]) assert.match(words, /usb-tablet/);
  assert.match(emulated, /ide-cd.*bootindex=2/);
  const uefi = computerWords({ ...SPEC, variables: "/upper/variables" }, PARTS).join(" ");
  assert.match(uefi, /pflash0=code,pflash1=variables.*node-name=code,read-only=on.*node-name=variables,read-only=off/);
});

test("ports of an agent and a kernel of its own are there for images that have them, and for no other", () => {
  const plain = computerWords(SPEC, PARTS).join(" ");
  assert.ok(!/virtserialport|-kernel/.test(plain));
  const kernel = { image: "/layers/kernel", initramfs: "/layers/initramfs" };
  const whole = computerWords({ ...SPEC, agent: true, kernel }, PARTS).join(" ");
  assert.match(whole, /-kernel \/layers\/kernel -initrd \/layers\/initramfs -append root=\/dev\/vda /);
  assert.match(whole, /name=dsec\.control.*name=dsec\.agent,id=agent-port/);
});
