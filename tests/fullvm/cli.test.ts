import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, describe, test } from "node:test";
import type { UsageView } from "#sdk";
import { dsec } from "../support/cli.ts";
import type { TestNode } from "../support/node.ts";
import { described, MEMTEST, memtestShows, startNodeWithMemtest } from "./screen.ts";

const MIB = 1024 * 1024;
const skip = existsSync(MEMTEST) ? false : `${MEMTEST} is missing: ./dsec test fullvm installs it`;
const FFMPEG = "/usr/bin/ffmpeg";

describe("the command line about full VMs", { timeout: 900_000, skip }, () => {
  let node: TestNode;
  let id: string;
  before(async () => {
    node = await startNodeWithMemtest();
    const imported = await dsec(node, ["image", "import", "--vm", MEMTEST, "cd", "--devices", "emulated"]);
    assert.equal(imported.status, 0, imported.stderr);
    const created = await dsec(node, ["create", "--base", "cd", "--memory", "64MiB", "--firmware", "bios"]);
    assert.equal(created.status, 0, created.stderr);
    id = created.stdout.trim();
    await memtestShows(node.client.sandboxes.use(id));
  });
  after(() => node[Symbol.asyncDispose]());

  const fileOf = (name: string) => join(node.marks.folder, name);

  async function succeeds(...words: string[]): Promise<string> {
    const { status, stdout, stderr } = await dsec(node, words);
    assert.equal(status, 0, `${words.join(" ")}: ${stderr}`);
    return stdout;
  }

  async function fails(message: RegExp, ...words: string[]): Promise<void> {
    const { status, stderr } = await dsec(node, words);
    assert.equal(status, 125, `${words.join(" ")}: ${stderr}`);
    assert.match(stderr, message);
  }

  test("takes pictures, to a file and to stdout", async () => {
    await succeeds("screen", id, "-o", fileOf("a.png"));
    assert.equal(described(readFileSync(fileOf("a.png"))).width, 720);
    assert.match(await succeeds("screen", id, "-o", "-"), /PNG/);
    for (const [option, value] of [
      ["--wait", "1s"],
      ["--tolerance", "0.1"],
    ] as const) {
      await fails(/--settled/, "screen", id, "-o", "-", option, value);
    }
    await fails(/0 to 1/, "screen", id, "-o", "-", "--settled", "1s", "--tolerance", "2");
    await fails(/cannot be written/, "screen", id, "-o", "/nowhere/a.png");
    await fails(/required option/, "screen", id);
  });

  test("top tells what its machine takes of the node's memory", async () => {
    const { machine } = JSON.parse(await succeeds("--json", "top", "--once", id)) as UsageView;
    assert.ok((machine?.privateBytes ?? 0) > 8 * MIB && (machine?.sharedBytes ?? 0) > MIB, JSON.stringify(machine));
  });

  test("types, presses keys and uses the mouse", async () => {
    await succeeds("type", id, "hello", "--enter");
    await succeeds("key", id, "f1", "ctrl+alt+a", "shift+plus");
    await succeeds("click", id, "10", "20");
    await succeeds("click", id, "10", "20", "--button", "right", "--double");
    await succeeds("click", id, "10", "20", "--to", "30,40");
    await succeeds("click", id, "10", "20", "--scroll=-2");
    await fails(/U\+00FC/, "type", id, "\u00fc");
    await fails(/hyper/, "key", id, "hyper+a");
    await fails(/not on the screen/, "click", id, "9999", "1");
    await fails(/do not go together/, "click", id, "1", "1", "--double", "--to", "2,2");
    await fails(/left, middle, right/, "click", id, "1", "1", "--button", "fourth");
    await fails(/points/, "click", id, "here", "1");
  });

  test("tells and switches power", async () => {
    assert.equal(await succeeds("power", id), "on\n");
    await succeeds("power", id, "off");
    assert.equal(await succeeds("power", id), "off\n");
    await succeeds("power", id, "reset");
    assert.match(await succeeds("--json", "power", id), /"power":"on"/);
    await fails(/press, on, off, reset/, "power", id, "explode");
  });

  test("records a video by ffmpeg, and says so where there is none", async (t) => {
    const none = spawn(
      process.execPath,
      [join(import.meta.dirname, "../../bin/dsec.ts"), "record", id, "-o", "x.mp4"],
      {
        env: { ...process.env, ...node.env, PATH: "/nowhere" },
        stdio: ["ignore", "ignore", "pipe"],
      },
    );
    let said = "";
    none.stderr.setEncoding("utf8").on("data", (text: string) => {
      said += text;
    });
    const [status] = await once(none, "close");
    assert.equal(status, 125);
    assert.match(said, /no ffmpeg/);
    await fails(/above 30/, "record", id, "-o", "x.mp4", "--rate", "99");
    if (!existsSync(FFMPEG)) return t.skip(`${FFMPEG} is missing: apt-get install ffmpeg`);
    const printed = await succeeds("record", id, "-o", fileOf("film.mp4"), "--for", "2s", "--rate", "4");
    assert.match(printed, /8 frames/);
    assert.equal(readFileSync(fileOf("film.mp4")).toString("latin1", 4, 8), "ftyp");
    await fails(/made no video/, "record", id, "-o", fileOf("film.unheard-of"), "--for", "1s");
  });

  test("leads VNC viewers to the display until Ctrl-C", async () => {
    const vnc = spawn(process.execPath, [join(import.meta.dirname, "../../bin/dsec.ts"), "--json", "vnc", id], {
      env: { ...process.env, ...node.env },
      stdio: ["ignore", "pipe", "inherit"],
    });
    const ended = once(vnc, "close");
    const [line] = (await once(createInterface({ input: vnc.stdout }), "line")) as [string];
    const { local } = JSON.parse(line) as { local: { host: string; port: number } };
    const viewer = connect(local.port, local.host);
    const [hello] = (await once(viewer, "data")) as [Buffer];
    assert.equal(hello.toString("latin1"), "RFB 003.008\n");
    viewer.destroy();
    vnc.kill("SIGINT");
    assert.deepEqual(await ended, [0, null]);
  });

  test("refuses what belongs to other sandboxes, and other sandboxes refuse this", async () => {
    await fails(/no agent/, "exec", id, "--", "true");
    await fails(/go only with --vm/, "image", "import", MEMTEST, "x", "--firmware", "uefi");
    await fails(/does not go with --kind/, "image", "import", "--vm", MEMTEST, "x", "--kind", "base");
    await fails(/no file/, "image", "import", "--vm", "/usr", "x");
    await fails(/cannot be read/, "image", "import", "--vm", "/nowhere", "x");
    const { status, stderr } = await dsec(node, ["run", "--base", "cd", "--", "true"]);
    assert.equal(status, 125, stderr);
    assert.match(stderr, /no agent/);
  });
});
