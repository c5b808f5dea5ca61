import assert from "node:assert/strict";
import { test } from "node:test";
import { rig } from "../../test-support/rig.ts";

test("a session is opened as it was asked for, shown, listed and removed", async () => {
  await using api = await rig();
  const path = `/v1/sandboxes/${await api.sandbox()}/sessions`;
  const json = { name: "build", cwd: "/src", env: { A: "1" }, user: "app" };
  const opened = await api.call("POST", path, { json, headers: { "idempotency-key": "k" } });
  assert.equal(opened.status, 201);
  assert.deepEqual(api.node.sessions.get("build")?.spec, { ...json, idempotencyKey: "k" });
  assert.deepEqual((await api.call("GET", `${path}/build`)).bytes, opened.bytes);
  const list = (await api.call("GET", path)).json;
  assert.deepEqual(
    list.sessions.map(({ name }) => name),
    ["build"],
  );
  assert.equal((await api.call("DELETE", `${path}/build`)).status, 204);
  assert.equal((await api.call("GET", `${path}/build`)).status, 404);
});

test("a line is a command of its session, with bytes that need not be text", async () => {
  await using api = await rig();
  api.node.program = { stdout: Buffer.from("out"), code: 3 };
  const path = `/v1/sandboxes/${await api.sandbox()}/sessions/build/commands`;
  const line = { base64: Buffer.from("echo \xff", "latin1").toString("base64") };
  const { status, json } = await api.call("POST", `${path}?waitMs=1000`, { json: { line, timeLimitMs: 5 } });
  assert.deepEqual([status, json.status.code, json.session], [201, 3, "build"]);
  const [{ spec } = {}] = api.node.commands.values();
  assert.deepEqual(spec?.argv, [Buffer.from("echo \xff", "latin1")]);
  assert.deepEqual([spec?.session, spec?.timeLimitMs, spec?.stdin], [{ name: "build", role: "line" }, 5, "none"]);
});

test("what no session or line has is refused by name", async () => {
  await using api = await rig();
  const path = `/v1/sandboxes/${await api.sandbox()}/sessions`;
  const cases: readonly (readonly [string, unknown, RegExp])[] = [
    [path, { name: "a/b" }, /name/],
    [path, { name: "" }, /name/],
    [path, { shell: "/bin/sh" }, /unknown key/],
    [path, { cwd: "relative" }, /cwd/],
    [`${path}/x/commands`, {}, /line/],
    [`${path}/x/commands`, { line: "a\0b" }, /NUL/],
    [`${path}/x/commands`, { line: "x".repeat(1024 * 1024 + 1) }, /a session takes 1048576 at most/],
    [`${path}/x/commands`, { line: "true", cwd: "/" }, /unknown key/],
  ];
  for (const [where, json, message] of cases) {
    const answer = await api.call("POST", where, { json });
    assert.deepEqual(
      [answer.status, answer.json.error.kind],
      [400, "InvalidArgument"],
      JSON.stringify(json).slice(0, 80),
    );
    assert.match(answer.json.error.message, message);
  }
});
