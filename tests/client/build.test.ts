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

const STAGES = `
ARG GREETING=hello
FROM host-busybox AS never
RUN echo never; exit 1
FROM host-busybox AS maker
ARG GREETING
WORKDIR /make
RUN mkdir -p out/deep && echo "made by $GREETING" >out/one && echo two >out/deep/two
RUN ln -s one out/link && chown 5:6 out/one && chmod 640 out/one
FROM maker AS more
FROM host-busybox
COPY --from=more /make/out /out
COPY --from=1 /make/out/li* /renamed
COPY --from=maker --chown=1000:1000 --chmod=600 /make/out/deep/two /owned
COPY --from=host-busybox /bin/busybox /copies/
`;

const DOCUMENTS = `
FROM host-busybox
ENV WORD=value
RUN <<EOF
set -e
x=2
echo $((x + 3)) >/script
EOF
RUN cat <<A >/read && echo done
said $WORD
A
COPY --chmod=640 <<CONF /etc/app.conf
word = "$WORD"
CONF
COPY <<"literal" /etc/
$WORD
literal
`;

describe("building from a Dockerfile", { timeout: 900_000 }, () => {
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

  const build = async (text: string, name: string, ...words: readonly string[]) => {
    writeFileSync(join(folder, "file"), text);
    return await dsec(node, ["image", "build", "-t", name, "-f", join(folder, "file"), ...words, folder]);
  };

  test("stages that the last one needs are built, and give it their files; the others do not run", async () => {
    const built = await build(STAGES, "staged");
    assert.equal(built.status, 0, built.stderr);
    assert.doesNotMatch(built.stderr, /never/);
    assert.match(built.stderr, /\[maker 1\/4\] ARG/);
    await using sandbox = await node.client.sandboxes.create({ base: "staged" });
    const line =
      "cat /out/one /out/deep/two /renamed; stat -c '%u:%g %a' /out/one /owned; ls -A /out /out/deep; test -e /make || echo gone";
    const { stdoutText, stderrText } = await sandbox.run(line);
    const files = ["/out:", "deep", "link", "one", "", "/out/deep:", "two"];
    const expected = ["made by hello", "two", "made by hello", "5:6 640", "1000:1000 600", ...files, "gone"];
    assert.equal(stdoutText, `${expected.join("\n")}\n`, stderrText);
    const again = await build(STAGES, "staged");
    assert.equal(again.stderr.match(/from an earlier build/g)?.length, 6, again.stderr);
    const missing = await build(STAGES.replace("/make/out /out", "/make/none /out"), "missing");
    assert.equal(missing.status, 125);
    assert.match(missing.stderr, /none/);
    assert.equal((await dsec(node, ["image", "info", "missing"])).status, 125);
    assert.equal(await sandboxes(), 1);
  });

  test("here-documents are scripts, what commands read, and files", async () => {
    const built = await build(DOCUMENTS, "documents");
    assert.equal(built.status, 0, built.stderr);
    await using sandbox = await node.client.sandboxes.create({ base: "documents" });
    const line = "cat /script /read /etc/app.conf /etc/literal; stat -c '%a %u' /etc/app.conf";
    assert.equal((await sandbox.run(line)).stdoutText, '5\nsaid value\nword = "value"\n$WORD\n640 0\n');
    const bad = await build("FROM host-busybox\nRUN <<EOF\n#!/bin/sh\nEOF", "bad");
    assert.match(bad.stderr, /line 2: a here-document with #! is not supported/);
  });

  test("a toolkit is what the steps made, over any base, with what the file itself says", async () => {
    const text = "FROM app:v1\nENV TOOL=yes\nUSER 0\nRUN echo tool >/opt-tool && rm /etc/group\n";
    const built = await build(text, "kit", "--kind", "toolkit", "--json");
    assert.equal(built.status, 0, built.stderr);
    const view = JSON.parse(built.stdout);
    assert.deepEqual([view.kind, view.config.env, view.config.user], ["toolkit", { TOOL: "yes" }, "0"]);
    const below = await node.client.artifacts.info("app:v1");
    assert.ok(!view.layers.some((layer: string) => below.layers.includes(layer)));
    assert.deepEqual(view.parents, [below.digest]);
    await using sandbox = await node.client.sandboxes.create({ base: "host-busybox", toolkits: ["kit"] });
    const { stdoutText } = await sandbox.run("cat /opt-tool; echo $TOOL; ls /etc/group");
    assert.equal(stdoutText, "tool\nyes\n");
    const base = await build("FROM app:v1\nRUN true\n", "whole", "--kind", "base", "--json");
    assert.equal(JSON.parse(base.stdout).kind, "base");
    await using whole = await node.client.sandboxes.create({ base: "whole" });
    assert.equal((await whole.run("cat /srv/app/out")).stdoutText, "hi /srv/app 0\n");
  });

  test("an artifact gives its layers to one of another kind, and never those of what it was not made on", async () => {
    const words = ["image", "derive", "app:v1", "derived", "--kind", "workspace", "--json"];
    const made = await dsec(node, [...words, "--over", "host-busybox"]);
    assert.equal(made.status, 0, made.stderr);
    const names = ["derived", "app:v1", "host-busybox"];
    const [view, app, base] = await Promise.all(names.map((name) => node.client.artifacts.info(name)));
    assert.deepEqual(view?.layers, app?.layers.slice(base?.layers.length));
    assert.equal(view?.kind, "workspace");
    for (const over of ["app:v1", "staged"]) {
      assert.match((await dsec(node, [...words, "--over", over])).stderr, /no layers of its own over/, over);
    }
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
