import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { forEachBuild, shell, TestAgent } from "./testing.ts";

const FIELDS = ["CapEff", "CapBnd", "NoNewPrivs", "Seccomp"];

/** What a process may do, as the kernel says it. */
function rights(status: string): readonly (string | undefined)[] {
  return FIELDS.map((name) => new RegExp(`^${name}:\\s*(\\S+)`, "m").exec(status)?.[1]);
}

forEachBuild((build) => {
  test(`${build}: an agent of a whole machine takes nothing from what it starts; any other does`, async () => {
    const own = rights(readFileSync("/proc/self/status", "utf8"));
    for (const whole of [true, false]) {
      await using agent = await TestAgent.start({ build, args: whole ? ["--whole"] : [] });
      const link = await agent.connect();
      const { stdout } = await shell(link, "cat /proc/self/status");
      if (whole) assert.deepEqual(rights(stdout.toString()), own);
      else assert.notDeepEqual(rights(stdout.toString()), own);
      link.close();
    }
  });
});
