import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { lockDataDir } from "./data-lock.ts";
import { findEndpoint } from "./endpoint.ts";
import { readNodeRecord, removeNodeRecord, startTicksOf, writeNodeRecord } from "./node-record.ts";

const root = mkdtempSync(join(tmpdir(), "dsec-record-"));
const places = { dataDir: join(root, "data"), runDir: join(root, "run") };
mkdirSync(places.dataDir);
mkdirSync(places.runDir);
after(() => rmSync(root, { recursive: true, force: true }));

function record(content: unknown): void {
  writeFileSync(join(places.runDir, "node.json"), typeof content === "string" ? content : JSON.stringify(content));
}

describe("the record of a node", () => {
  test("names the process that wrote it until that takes it away", () => {
    assert.equal(readNodeRecord(places), undefined);
    writeNodeRecord(places, "http://127.0.0.1:1");
    assert.deepEqual(readNodeRecord(places)?.url, "http://127.0.0.1:1");
    removeNodeRecord(places);
    assert.equal(readNodeRecord(places), undefined);
  });

  test("of a process that is gone, or whose id is another's now, counts as none", async () => {
    const child = spawn("true");
    await once(child, "exit");
    record({ pid: child.pid, startTicks: 1, url: "x" });
    assert.equal(readNodeRecord(places), undefined);
    record({ pid: process.pid, startTicks: (startTicksOf(process.pid) ?? 0) + 1, url: "x" });
    assert.equal(readNodeRecord(places), undefined);
    removeNodeRecord({ ...places, runDir: join(root, "nowhere") });
  });

  test("that is damaged counts as none", () => {
    for (const content of ["", "{", "[]", "null", '{"pid":"1"}']) {
      record(content);
      assert.equal(readNodeRecord(places), undefined, content);
    }
  });
});

describe("the endpoint", () => {
  test("is what the environment says, before everything else", async () => {
    const env = { DSEC_URL: "http://elsewhere:1", DSEC_TOKEN: "t" };
    assert.deepEqual(await findEndpoint(env, places, undefined), { url: "http://elsewhere:1", token: "t" });
    await assert.rejects(findEndpoint({ DSEC_URL: "no url" }, places, undefined), { kind: "InvalidArgument" });
  });

  test("is the running node with the token of its file", async () => {
    writeNodeRecord(places, "http://127.0.0.1:1");
    await assert.rejects(findEndpoint({}, places, undefined), {
      kind: "FailedPrecondition",
      message: /token is missing/,
    });
    writeFileSync(join(places.dataDir, "token"), "secret\n");
    chmodSync(join(places.dataDir, "token"), 0o600);
    assert.deepEqual(await findEndpoint({}, places, undefined), { url: "http://127.0.0.1:1", token: "secret" });
    removeNodeRecord(places);
  });

  test("is started when there is none and the command may start one", async () => {
    await assert.rejects(findEndpoint({}, places, undefined), { kind: "Unavailable", hint: /dsec up/ });
    const start = async () => ({ url: "http://started:1" });
    assert.deepEqual(await findEndpoint({}, places, start), { url: "http://started:1", token: "secret" });
  });
});

describe("a data directory", () => {
  test("takes one node; a second one is told which process has it", () => {
    using _ = lockDataDir(places.dataDir);
    assert.throws(() => lockDataDir(places.dataDir), {
      kind: "FailedPrecondition",
      message: new RegExp(`process ${process.pid}$`),
    });
  });

  test("is free again when its node has been killed", async () => {
    const script = `const { lockDataDir } = await import(${JSON.stringify(new URL("./data-lock.ts", import.meta.url))});
      globalThis.lock = lockDataDir(${JSON.stringify(places.dataDir)}); console.log("locked"); setInterval(() => {}, 1000);`;
    const child = spawn(process.execPath, ["--input-type=module", "-e", script], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    await once(child.stdout, "data");
    assert.throws(() => lockDataDir(places.dataDir), { message: new RegExp(`process ${child.pid}$`) });
    child.kill("SIGKILL");
    await once(child, "exit");
    lockDataDir(places.dataDir)[Symbol.dispose]();
  });
});
