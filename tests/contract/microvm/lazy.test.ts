import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { startS3Peer } from "#images/store/test-support/s3-peer.ts";
import { FILES, holdStore, makeLazy, nodeOptions, sumOf, WORK } from "../../support/lazy-data.ts";
import { output } from "../../support/sandbox.ts";
import { MICROVM } from "./backend.ts";

describe("layers of microVMs whose data lies in the store", { timeout: 600_000 }, () => {
  test("they are read as they are needed; a machine whose read waits outlives its node, and holds up no other", async () => {
    await using peer = await startS3Peer();
    await using node = await MICROVM.startNode(nodeOptions(peer, "--fetch-timeout=10m"));
    const sums = await makeLazy(node, peer);
    const { id } = await MICROVM.create(node, WORK);
    assert.equal(await sumOf(node.client.sandboxes.use(id), 0), sums[0]);
    const [before] = await node.client.artifacts.layers("work");
    assert.equal(before?.state, "lazy");
    assert.ok(before.presentBytes > 0 && before.presentBytes < before.sizeBytes, `${before.presentBytes} bytes`);
    const other = await MICROVM.create(node, WORK);
    // What the command itself needs is there from now on.
    assert.equal(await output(other, "echo alive"), "alive");

    const asked = holdStore(peer);
    const reader = await node.client.sandboxes.use(id).start(["/bin/busybox", "sha256sum", "/data/9"]);
    await asked;
    assert.equal(await output(other, "echo alive"), "alive");
    await node.kill();
    await node.start();
    peer.fault = () => undefined;
    const again = node.client.sandboxes.use(id);
    assert.equal((await again.command(reader.id).result()).stdoutText.split(" ")[0], sums[9]);
    for (let file = 0; file < FILES; file++) assert.equal(await sumOf(again, file), sums[file]);
    await again.remove();
    await node.client.sandboxes.remove(other.id);
  });
});
