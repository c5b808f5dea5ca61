import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { parseMount } from "#host/sys/mountinfo.ts";
import { APART, leaving, needlessMounts } from "./apart.ts";

const root = mkdtempSync(join(tmpdir(), "dsec-apart-"));
after(() => rmSync(root, { recursive: true }));
const [UNSHARE = "", ...UNSHARED] = APART;
const mounted = (target: string, source = "/dev/loop1") =>
  parseMount(`1 2 7:1 / ${target} rw,relatime - ext4 ${source} rw`);

test("what a machine names stays, as do what that lies in and a system's programs", () => {
  mkdirSync(join(root, "store/layer"), { recursive: true });
  for (const file of ["store/layer/disk", "alone", "with,comma"]) writeFileSync(join(root, file), "");
  const targets = [`${root}/store`, `${root}/alone`, `${root}/with,comma`, `${root}/sto`, "/elsewhere", "/usr", "/"];
  const mounts = [...targets.map((target) => mounted(target)), mounted("/run", "tmpfs")];
  const words = [
    "qemu",
    `-drive=file=${root}/store/layer/disk`,
    "-kernel",
    `${root}/alone`,
    `path=${root}/with,,comma,x`,
  ];
  assert.deepEqual(needlessMounts(words, mounts), [`${root}/sto`, "/elsewhere"]);
  assert.deepEqual(needlessMounts([...words, "/nobody/knows/where"], mounts), []);
});

test("mounts are left in the namespace of the machine alone, whatever they are called", () => {
  const names = ["plain", "it's", "a b", "$(touch x)", "kept"];
  const dirs = names.map((name) => join(root, name));
  for (const dir of dirs) mkdirSync(dir);
  const script = 'for dir; do mount -t tmpfs leave-test "$dir" || exit 1; done';
  // Within one of its own, so that nothing is left of it whatever happens.
  const inner = [...leaving(dirs.slice(0, -1)), "grep", "leave-test", "/proc/self/mountinfo"];
  const outer = [
    "unshare",
    "--mount",
    "sh",
    "-c",
    `${script}; exec ${[UNSHARE, ...UNSHARED, ...inner].map(shell).join(" ")}`,
  ];
  const [program = "", ...rest] = [...outer, "sh", ...dirs];
  const left = execFileSync(program, rest, { encoding: "utf8" }).trim().split("\n");
  assert.deepEqual(
    left.map((each) => parseMount(each).target),
    [join(root, "kept")],
  );
});

test("a host with thousands of mounts starts machines", () => {
  const targets = Array.from({ length: 20_000 }, (_, n) => `/nowhere/${"x".repeat(100)}/${n}`);
  const words = leaving(targets);
  assert.ok(words.every((word) => word.length < 128 * 1024));
  const [program = "", ...rest] = [...leaving(targets.slice(0, 3_000)), "echo", "started"];
  assert.equal(execFileSync(program, rest, { encoding: "utf8" }), "started\n");
  assert.ok(words.join(" ").length < 1.5 * 1024 * 1024);
});

function shell(word: string): string {
  return `'${word.replaceAll("'", "'\\''")}'`;
}
