import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { dsec } from "../support/cli.ts";
import { startNode, type TestNode } from "../support/node.ts";

const DOCKERFILE = `
ARG BASE=host-busybox
FROM $BASE
ARG GREETING=hello
ENV WORD=$GREETING MODE=test
WORKDIR /srv/app
COPY --chown=user --chmod=640 data/ ./data/
RUN echo "$WORD $(pwd) $(id -u)" >out && rm /etc/profile
USER user
RUN ["/bin/sh", "-c", "id -un >/tmp/who; cat data/one >/tmp/copy"]
LABEL team=a
CMD ["run", "me"]
`;

describe("building from a Dockerfile", { timeout: 300_000 }, () => {
  let node: TestNode;
  let folder = "";
  before(async () => {
    folder = mkdtempSync(join(tmpdir(), "dsec-build-"));
    node = await startNode();
    await node.client.artifacts.build({ name: "host-busybox", suite: "host-busybox" });
    mkdirSync(join(folder, "data"));
    writeFileSync(join(folder, "data/one"), "one");
    writeFileSync(join(folder, "Dockerfile"), DOCKERFILE);
  });
  after(async () => {
    rmSync(folder, { recursive: true, force: true });
    await node?.[Symbol.asyncDispose]();
  });

  async function sandboxes(): Promise<number> {
    return (await Array.fromAsync(node.client.sandboxes.list())).length;
  }

  test("runs each step on what the steps before left, and the image runs as the file says", async () => {
    const built = await dsec(node, ["image", "build", "-t", "app:v1", "--build-arg", "GREETING=hi", folder, "--json"]);
    assert.equal(built.status, 0, built.stderr);
    const view = JSON.parse(built.stdout);
    assert.deepEqual(view.config.image, { labels: { team: "a" }, command: ["run", "me"] });
    await using sandbox = await node.client.sandboxes.create({ base: "app:v1" });
    const line = "cat out /tmp/who /tmp/copy; stat -c '%U %a' data/one; echo $WORD $MODE; pwd; id -un; ls /etc/profile";
    const result = await sandbox.run(line);
    assert.equal(result.stdoutText, "hi /srv/app 0\nuser\noneuser 640\nhi test\n/srv/app\nuser\n");
    assert.match(result.stderrText, /profile/);
    assert.equal(await sandboxes(), 1);
  });

  test("takes steps from earlier builds until something they are made of changes", async () => {
    const again = await dsec(node, ["image", "build", "-t", "app:v2", "--build-arg", "GREETING=hi", folder]);
    assert.equal(again.stderr.match(/from an earlier build/g)?.length, 3, again.stderr);
    writeFileSync(join(folder, "data/one"), "changed");
    const changed = await dsec(node, ["image", "build", "-t", "app:v2", "--build-arg", "GREETING=hi", folder]);
    assert.equal(changed.status, 0, changed.stderr);
    assert.doesNotMatch(changed.stderr, /from an earlier build/);
    const fresh = await dsec(node, ["image", "build", "-t", "app:v2", "--no-cache", folder]);
    assert.doesNotMatch(fresh.stderr, /from an earlier build/);
  });

  test("a step that fails shows what it wrote and its status, and leaves neither sandbox nor name", async () => {
    writeFileSync(join(folder, "bad"), "FROM host-busybox\nRUN true\nRUN echo before it; exit 7\n");
    const failed = await dsec(node, ["image", "build", "-t", "broken", "-f", join(folder, "bad"), folder]);
    assert.equal(failed.status, 125);
    assert.match(failed.stderr, /before it[\s\S]*line 3: RUN echo before it; exit 7 ended with exit status 7/);
    assert.equal((await dsec(node, ["image", "info", "broken"])).status, 125);
    assert.equal(await sandboxes(), 0);
  });

  test("what a build does not take is refused with its line before anything runs", async () => {
    for (const [text, message] of [
      ["FROM host-busybox\nVOLUME /x", /line 2: VOLUME/],
      ["FROM host-busybox\nADD https://example.org/x /", /line 2: ADD takes local files/],
      ["FROM scratch", /line 1: FROM scratch/],
      ["FROM nothing-there", /nothing-there/],
      ["FROM host-busybox\nCOPY missing /", /missing/],
    ] as const) {
      writeFileSync(join(folder, "bad"), text);
      const refused = await dsec(node, ["image", "build", "-t", "broken", "-f", join(folder, "bad"), folder]);
      assert.equal(refused.status, 125);
      assert.match(refused.stderr, message);
    }
    for (const words of [
      ["-t", "x", "--debian", "bookworm", folder],
      ["-f", "x", "name"],
      ["-t", "x", "--build-arg", "NO=1", folder],
    ]) {
      assert.equal((await dsec(node, ["image", "build", ...words])).status, 125, words.join(" "));
    }
  });
});
