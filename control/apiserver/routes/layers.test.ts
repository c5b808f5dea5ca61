import assert from "node:assert/strict";
import { test } from "node:test";
import { rig } from "../../test-support/rig.ts";

test("the layers of an artifact say where their data is, and an unknown name has none", async () => {
  await using api = await rig();
  const made = await api.call("POST", "/v1/artifacts/import?name=team/tools&kind=toolkit", { body: "x" });
  const { status, json } = await api.call("GET", `/v1/artifacts/${encodeURIComponent("team/tools")}/layers`);
  assert.equal(status, 200);
  const [digest] = made.json.layers;
  const counts = { sizeBytes: 8192, presentBytes: 4096, hits: 3, misses: 1 };
  assert.deepEqual(json, { layers: [{ digest, state: "lazy", mounted: false, ...counts }] });
  assert.equal((await api.call("GET", "/v1/artifacts/nothing/layers")).status, 404);
});
