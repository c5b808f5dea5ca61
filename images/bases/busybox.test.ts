import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { statSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { temporaryStore } from "../test-support/fixtures.ts";
import { fsck, mounted } from "../test-support/inspect.ts";
import { hostBusybox } from "./busybox.ts";

test("the host-busybox base runs a shell, has its users and homes, and is the same each time", async () => {
  using made = await temporaryStore();
  const startedAtMs = performance.now();
  const first = await hostBusybox(made.store);
  assert.ok(performance.now() - startedAtMs < 5000);
  assert.deepEqual((await hostBusybox(made.store)).layers, first.layers);
  const [digest = assert.fail("no layer")] = first.layers;
  await fsck(made.store, digest);
  using layer = await mounted(made.store, digest);
  const script = "echo $((6*7)); id -u user; ls -d ~user; grep -c . /etc/passwd; which tar";
  const output = execFileSync("/usr/sbin/chroot", [layer.path, "/bin/sh", "-c", script], {
    encoding: "utf8",
    env: { PATH: "/usr/bin:/bin" },
  });
  assert.equal(output, "42\n1000\n/home/user\n3\n/bin/tar\n");
  assert.equal(statSync(join(layer.path, "tmp")).mode, 0o41777);
  assert.equal(statSync(join(layer.path, "home/user")).uid, 1000);
  assert.equal(statSync(join(layer.path, "bin/sh")).ino, statSync(join(layer.path, "bin/busybox")).ino);
});
