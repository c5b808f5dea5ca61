import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { SandboxError } from "#core/errors.ts";
import { newSandboxId, parseEdgeId } from "#core/ids.ts";
import { MachineControl } from "#guest/protocol/machine.ts";
import type { Machine } from "#host/vmm/vmm.ts";
import { Guest } from "./live.ts";

test("a guest that ends in a monitor that does not die is told, and ends nothing else", async () => {
  const dir = mkdtempSync(join(tmpdir(), "dsec-live-"));
  const server = createServer().listen(join(dir, "control.sock"));
  try {
    await once(server, "listening");
    const socket = connect(join(dir, "control.sock"));
    await once(socket, "connect");
    const ended = Promise.withResolvers<string>();
    const machine: Machine = {
      process: { pid: 1, startTicks: 1 },
      ended: ended.promise,
      run: () => Promise.resolve(),
      pause: () => Promise.resolve(),
      saveDevices: () => Promise.resolve(Buffer.alloc(0)),
      console: () => Promise.resolve(""),
      leave: () => undefined,
      end: () => Promise.reject(new SandboxError("Unavailable", "QEMU 1 does not die")),
    };
    const lines: string[] = [];
    const told = Promise.withResolvers<void>();
    const guest = new Guest(
      newSandboxId(parseEdgeId("t")),
      { machine, control: new MachineControl(socket), dir },
      (line) => {
        if (lines.push(line) === 2) told.resolve();
      },
    );
    ended.resolve("Kernel panic");
    await told.promise;
    assert.match(lines.join("\n"), /has ended: "Kernel panic"\n.*QEMU 1 does not die/);
    assert.equal(guest.isOpen, false);
  } finally {
    server.close();
    rmSync(dir, { recursive: true });
  }
});
