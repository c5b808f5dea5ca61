import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { connect, createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, describe, test } from "node:test";
import { connectMachine, MachineControl, MachineFailure } from "./machine.ts";

/** A port whose other end the test plays: each line is answered by what `answer` makes of it. */
async function port(path: string, answer: (line: string, socket: Socket) => void): Promise<Server> {
  const server = createServer((socket) => {
    createInterface({ input: socket }).on("line", (line) => {
      if (line !== "") answer(line, socket);
    });
    socket.on("error", () => {});
  });
  server.listen(path);
  await once(server, "listening");
  return server;
}

describe("the lines to a machine", () => {
  let dir: string;
  before(() => {
    dir = mkdtempSync(join(tmpdir(), "dsec-machine-"));
  });
  after(() => rmSync(dir, { recursive: true }));
  const soon = () => AbortSignal.timeout(10_000);

  test("answers are taken by their id; those to an earlier connection, and noise, are not", async () => {
    const path = join(dir, "ids");
    await using server = await port(path, (line, socket) => {
      const [id, verb] = line.split(" ");
      if (verb === "hello") socket.write(`0.1 ok 9\nhalf a line\n${id} ok 1\n`);
      else socket.write(`stale ok 9 9 9 9 9\n${id} ok 1 2 3 4 5\n`);
    });
    assert.ok(server.listening);
    const control = await connectMachine(path, soon());
    assert.deepEqual(await control.usage(), { pids: 1, memoryBytes: 2, peakBytes: 3, oomKills: 4, diskBytes: 5 });
    control.close();
  });

  test("a machine that is somebody else's counts nothing that is no count", async () => {
    let answer = "";
    await using _server = await port(join(dir, "counts"), (line, socket) => {
      const [id, verb] = line.split(" ");
      socket.write(verb === "hello" ? `${id} ok 1\n` : `${id} ok ${answer}\n`);
    });
    const control = await connectMachine(join(dir, "counts"), soon());
    for (answer of ["1 x 3 4 5", "1 -2 3 4 5", "1 1e999 3 4 5", "0.5 2 3 4 5"]) {
      await assert.rejects(control.usage(), { kind: "Internal" }, answer);
    }
    control.close();
  });

  test("what the machine refuses has its errno and its words", async () => {
    const path = join(dir, "errors");
    await using _server = await port(path, (line, socket) => {
      const [id, verb] = line.split(" ");
      socket.write(verb === "hello" ? `${id} ok 1\n` : `${id} error 2 mount it\n`);
    });
    const control = await connectMachine(path, soon());
    await assert.rejects(control.mountUpper("disk0"), (error) => {
      assert.ok(error instanceof MachineFailure);
      assert.equal(error.errno, 2);
      assert.match(error.message, /upper.*mount it/);
      return true;
    });
    control.close();
  });

  test("one that is still at what it was asked for is no fault", async () => {
    const path = join(dir, "busy");
    let answer = "error 16 rest";
    await using _server = await port(path, (line, socket) => {
      const [id, verb] = line.split(" ");
      socket.write(verb === "hello" ? `${id} ok 1\n` : `${id} ${answer}\n`);
    });
    const control = await connectMachine(path, soon());
    assert.equal(await control.rest(), undefined);
    answer = "ok 4096";
    assert.equal(await control.rest(), 4096);
    answer = "error 5 rest";
    await assert.rejects(control.rest(), MachineFailure);
    control.close();
  });

  test("a machine of another version, one that ends, and one that is not there are told apart", async () => {
    await using _other = await port(join(dir, "other"), (line, socket) => socket.write(`${line.split(" ")[0]} ok 7\n`));
    await assert.rejects(connectMachine(join(dir, "other"), soon()), { kind: "FailedPrecondition" });
    await using _ends = await port(join(dir, "ends"), (_, socket) => socket.destroy());
    await assert.rejects(connectMachine(join(dir, "ends"), soon()), { kind: "SandboxLost" });
    await assert.rejects(connectMachine(join(dir, "nobody"), soon()), { kind: "SandboxLost" });
  });

  test("an abort gives up a machine that does not answer", async () => {
    const heard = Promise.withResolvers<void>();
    await using _server = await port(join(dir, "mute"), () => heard.resolve());
    const controller = new AbortController();
    const connecting = connectMachine(join(dir, "mute"), controller.signal);
    await heard.promise;
    controller.abort(new Error("enough"));
    await assert.rejects(connecting, { message: "enough" });
  });

  test("one that stops answering is asked again, and what was asked is not kept", async () => {
    let asked = 0;
    await using _server = await port(join(dir, "late"), (line, socket) => {
      asked += 1;
      if (asked !== 1) socket.write(`${line.split(" ")[0]} ok 1 2 3 4 5\n`);
    });
    const socket = connect(join(dir, "late"));
    const control = new MachineControl(socket, 200);
    await assert.rejects(control.usage(), { kind: "Unavailable" });
    assert.equal((await control.usage()).pids, 1);
    control.close();
  });
});
