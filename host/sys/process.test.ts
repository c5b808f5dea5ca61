import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { isExiting, processStartTicks } from "./process.ts";

test("a process that runs is not exiting; one that has ended is, whether its parent has taken note or not", async () => {
  // The shell becomes a program that waits for no child.
  const child = spawn("sh", ["-c", "sh -c 'echo $$' & exec sleep 600"], { stdio: ["ignore", "pipe", "ignore"] });
  const [said] = (await once(child.stdout, "data")) as [Buffer];
  const ended = Number(said.toString());
  while (processStartTicks(ended) !== undefined) await new Promise(setImmediate);
  assert.deepEqual([isExiting(ended), isExiting(child.pid ?? 0), isExiting(process.pid)], [true, false, false]);
  child.kill("SIGKILL");
  await once(child, "exit");
  assert.equal(isExiting(child.pid ?? 0), true);
});
