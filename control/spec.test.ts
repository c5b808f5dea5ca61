import assert from "node:assert/strict";
import { test } from "node:test";
import { newSandboxId, parseEdgeId } from "#core/ids.ts";
import { DEFAULT_RESOURCES } from "#core/sandbox.ts";
import { named, plan } from "./spec.ts";

const PLAIN = { layers: [], config: { env: {}, user: undefined, workdir: undefined } };
const CONTEXT = { project: "p", backend: "container" } as const;

test("what nobody says takes the default", () => {
  const made = plan({ base: "b" }, PLAIN, CONTEXT);
  assert.deepEqual([made.user, made.workdir, made.backend, made.hostname], ["root", "/", "container", undefined]);
  assert.deepEqual(made.resources, DEFAULT_RESOURCES);
  assert.deepEqual(Object.keys(made.env), ["PATH"]);
  assert.deepEqual(made.lifetime, { idleTimeoutMs: undefined, maxLifetimeMs: undefined });
});

test("the request wins over the image, and the image over the default", () => {
  const config = { env: { PATH: "/img", A: "img", B: "img" }, user: "app", workdir: "/srv" };
  const image = plan({ base: "b", env: { B: "req" } }, { layers: [], config }, CONTEXT);
  assert.deepEqual(image.env, { PATH: "/img", A: "img", B: "req" });
  assert.deepEqual([image.user, image.workdir], ["app", "/srv"]);
  const asked = plan({ base: "b", user: "1000", workdir: "/x", backend: "microvm" }, { layers: [], config }, CONTEXT);
  assert.deepEqual([asked.user, asked.workdir, asked.backend], ["1000", "/x", "microvm"]);
});

test("null lifts a time limit, and a name of variables is never a name of the object", () => {
  const made = plan({ base: "b", idleTimeoutMs: null, env: JSON.parse('{"__proto__": "x"}') }, PLAIN, CONTEXT);
  assert.equal(made.lifetime.idleTimeoutMs, undefined);
  assert.deepEqual(Object.entries(made.env).at(-1), ["__proto__", "x"]);
});

test("a sandbox without a name is called by its id", () => {
  const id = newSandboxId(parseEdgeId("n1"));
  assert.equal(named(plan({ base: "b" }, PLAIN, CONTEXT), id).hostname, id);
  assert.equal(named(plan({ base: "b", hostname: "web" }, PLAIN, CONTEXT), id).hostname, "web");
});
