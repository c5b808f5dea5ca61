import assert from "node:assert/strict";
import { test } from "node:test";
import type { InputAction } from "#core/computers.ts";
import { rig } from "../../test-support/rig.ts";

test("a screenshot is a PNG with whether it was still; the wait is bounded and needs its number", async () => {
  await using api = await rig();
  const id = await api.sandbox();
  const asked: unknown[] = [];
  Object.assign(api.node, {
    takeScreenshot: async (_: unknown, options: unknown) => {
      asked.push(options);
      return { png: Buffer.from("picture"), settled: false };
    },
  });
  const { status, headers, bytes } = await api.call(
    "GET",
    `/v1/sandboxes/${id}/screen?settledMs=200&waitMs=300&tolerance=0.5`,
  );
  assert.deepEqual([status, headers["content-type"], headers["x-dsec-settled"]], [200, "image/png", "false"]);
  assert.equal(bytes.toString(), "picture");
  assert.deepEqual(asked, [{ settledMs: 200, waitMs: 300, tolerance: 0.5 }]);
  for (const query of ["settledMs=0", "settledMs=x", "tolerance=2", "waitMs=99999999", "colour=red"]) {
    assert.equal((await api.call("GET", `/v1/sandboxes/${id}/screen?${query}`)).status, 400, query);
  }
});

test("input takes its forms with their defaults, and nothing else", async () => {
  await using api = await rig();
  const id = await api.sandbox();
  const sent: (readonly InputAction[])[] = [];
  Object.assign(api.node, {
    sendInput: async (_: unknown, actions: readonly InputAction[]) => void sent.push(actions),
  });
  const post = (actions: unknown) =>
    api.call("POST", `/v1/sandboxes/${id}/input`, {
      body: JSON.stringify({ actions }),
      headers: { "content-type": "application/json" },
    });
  const at = { x: 1, y: 2 };
  const good = [
    { type: "text", text: "a\n" },
    { type: "keys", keys: ["ctrl", "c"] },
    { type: "click", at },
    { type: "drag", from: at, to: at, button: "right" },
    { type: "scroll", at, notches: -3 },
  ];
  assert.equal((await post(good)).status, 204);
  assert.deepEqual(sent, [[good[0], good[1], { type: "click", at, button: "left", count: 1 }, good[3], good[4]]]);
  const bad = [
    [],
    [{ type: "dance" }],
    [{ type: "text" }],
    [{ type: "text", text: "a", speed: 1 }],
    [{ type: "keys", keys: [] }],
    [{ type: "move", to: { x: -1, y: 0 } }],
    [{ type: "click", at, button: "fourth" }],
    [{ type: "scroll", at, notches: 1000 }],
    Array.from({ length: 257 }, () => good[0]),
  ];
  for (const actions of bad) assert.equal((await post(actions)).status, 400, JSON.stringify(actions).slice(0, 80));
  assert.equal(sent.length, 1);
});

test("power takes one of its actions; displays and consoles need a WebSocket, and say so", async () => {
  await using api = await rig();
  const id = await api.sandbox();
  const done: unknown[] = [];
  Object.assign(api.node, { powerComputer: async (_: unknown, action: unknown) => void done.push(action) });
  const headers = { "content-type": "application/json" };
  const power = (action: string) =>
    api.call("POST", `/v1/sandboxes/${id}/power`, { body: JSON.stringify({ action }), headers });
  assert.deepEqual([(await power("reset")).status, (await power("explode")).status, done], [204, 400, ["reset"]]);
  for (const name of ["display", "console"]) {
    const { status, json } = await api.call("GET", `/v1/sandboxes/${id}/${name}`);
    assert.deepEqual([status, json.error.kind], [400, "InvalidArgument"]);
    assert.match(json.error.message, /WebSocket/);
  }
});

test("a disk becomes no tree of files, and a tree no disk", async () => {
  await using api = await rig();
  await api.call("POST", "/v1/artifacts/import?name=disk&kind=vm-image&format=vm", { body: Buffer.from("image") });
  const derive = (source: string, kind: string) =>
    api.call("POST", `/v1/artifacts/${source}/derive`, {
      body: JSON.stringify({ target: "other", kind }),
      headers: { "content-type": "application/json" },
    });
  for (const [source, kind] of [
    ["disk", "base"],
    ["disk", "snapshot"],
    ["busybox", "vm-image"],
  ] as const) {
    const { status, json } = await derive(source, kind);
    assert.deepEqual([status, json.error.kind], [400, "InvalidArgument"], `${source} as ${kind}`);
  }
  assert.equal((await derive("busybox", "toolkit")).status, 201);
  assert.equal((await api.call("GET", "/v1/artifacts/other")).json.kind, "toolkit");
});

test("a desktop is built into a vm-image, and into nothing else", async () => {
  await using api = await rig();
  const build = (request: object) =>
    api.call("POST", "/v1/artifacts/build", {
      body: JSON.stringify({ name: "built", ...request }),
      headers: { "content-type": "application/json" },
    });
  for (const kind of [undefined, "base", "toolkit"]) {
    const { status, json } = await build({ kind, desktop: true });
    assert.deepEqual([status, json.error.kind], [400, "InvalidArgument"], String(kind));
  }
  const { status } = await build({ kind: "vm-image", desktop: true });
  assert.equal(status, 200);
});

test("what is imported as vm is a vm-image, and a sandbox of it is a full VM with what its image says", async () => {
  await using api = await rig();
  const post = (query: string) => api.call("POST", `/v1/artifacts/import?${query}`, { body: Buffer.from("image") });
  const { status, json } = await post("name=disk&kind=vm-image&format=vm&firmware=uefi");
  assert.deepEqual(
    [status, json.kind, json.config.computer],
    [201, "vm-image", { firmware: "uefi", devices: "virtio" }],
  );
  for (const query of [
    "name=x&kind=vm-image&format=tar",
    "name=x&kind=vm-image",
    "name=x&kind=base&format=vm",
    "name=x&kind=base&firmware=uefi",
    "name=x&kind=vm-image&format=vm&firmware=coreboot",
    "name=x&kind=vm-image&format=vm&at=/x",
  ]) {
    assert.equal((await post(query)).status, 400, query);
  }
  const create = (request: object) =>
    api.call("POST", "/v1/sandboxes", {
      body: JSON.stringify(request),
      headers: { "content-type": "application/json" },
    });
  const refusals = [
    [{ base: "disk", backend: "container" }, 400],
    [{ base: "disk", env: { A: "b" } }, 412],
    [{ base: "disk", computer: { firmware: "coreboot" } }, 400],
    [{ base: "busybox", backend: "vm" }, 400],
    [{ base: "busybox", computer: { firmware: "uefi" } }, 400],
  ] as const;
  for (const [request, wanted] of refusals) {
    assert.equal((await create(request)).status, wanted, JSON.stringify(request));
  }
});
