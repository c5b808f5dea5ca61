import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { processStartTicks } from "#host/sys/process.ts";
import { machineMemory } from "./process-memory.ts";

test("what a process takes is counted while it is there, and is nothing when it has ended or is another", async () => {
  const child = spawn("sleep", ["100"]);
  await once(child, "spawn");
  const pid = child.pid ?? 0;
  const process = { pid, startTicks: processStartTicks(pid) ?? 0 };
  const { privateBytes = 0, sharedBytes = 0 } = (await machineMemory(process)) ?? {};
  assert.ok(privateBytes > 0 && sharedBytes > 0, `${privateBytes} and ${sharedBytes} bytes`);
  assert.equal(await machineMemory({ pid, startTicks: process.startTicks - 1 }), undefined);
  child.kill("SIGKILL");
  await once(child, "exit");
  assert.equal(await machineMemory(process), undefined);
});
