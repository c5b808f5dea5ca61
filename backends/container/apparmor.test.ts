import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import type { GuestLink } from "#core/guest.ts";
import { run } from "#core/suites/backend-suite.ts";
import { isAppArmorOn } from "#host/apparmor/apparmor.ts";
import { agentOf } from "./handle.ts";
import { type ContainerRig, containerRig } from "./test-support/rig.ts";

const soon = () => AbortSignal.timeout(30_000);
const skip = isAppArmorOn() ? false : "AppArmor is not in force in this kernel";

describe("a container where the kernel has AppArmor", { skip }, () => {
  let rig: ContainerRig;
  let link: GuestLink;
  let agentPid: number;
  before(async () => {
    rig = await containerRig();
    const handle = await rig.backend.create(rig.spec(), { slot: 1 }, soon());
    link = await rig.backend.connect(handle, soon());
    agentPid = agentOf(handle)?.pid ?? 0;
  });
  after(async () => {
    link?.close();
    await rig?.[Symbol.asyncDispose]();
  });

  test("runs commands under the profile, and the agent under none", async () => {
    const { stdout } = await run(link, ["cat", "/proc/self/attr/current"]);
    assert.equal(stdout, "dsec-sandbox (enforce)\n");
    assert.equal(readFileSync(`/proc/${agentPid}/attr/current`, "utf8"), "unconfined\n");
  });

  test("lets no command leave the profile, nor choose another for what it starts", async () => {
    const line =
      'for to in current exec; do for order in "changeprofile unconfined" "exec unconfined" "permhat x"; do ' +
      'printf "%s" "$order" 2>/dev/null >/proc/self/attr/$to && echo "$order $to"; done; done; cat /proc/self/attr/current';
    assert.equal((await run(link, ["sh", "-c", line])).stdout, "dsec-sandbox (enforce)\n");
  });

  test("lets root of the sandbox do its work", async () => {
    const line =
      "cd /tmp && echo text >file && chown 7:7 file && chmod 4711 file && ln -s file link && su -s /bin/sh nobody -c id && " +
      "mknod pipe p && sleep 100 & kill $! && ls /proc/self/fd >/dev/null && echo done";
    const { stdout, code } = await run(link, ["sh", "-c", line]);
    assert.match(stdout, /done\n$/);
    assert.equal(code, 0);
  });
});
