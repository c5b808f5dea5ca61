import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, readlinkSync, statSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { Sandbox } from "#sdk";
import type { TestNode } from "../../support/node.ts";
import { output } from "../../support/sandbox.ts";
import { waitUntil } from "../../support/wait.ts";
import { MICROVM } from "./backend.ts";

const MIB = 1024 * 1024;
/** A machine of 256 MiB. */
const RESOURCES = { memoryMiB: 160 };
/** /dev/shm has 64 MiB. */
const FILLED_MIB = 50;
/** Blocks of memory of which some of it is still used, and what QEMU takes more once it has worked. */
const REST_MIB = 25;
const FILE_MIB = 100;
const FILL = `head -c ${FILLED_MIB * MIB} /dev/urandom >/dev/shm/filled`;
/** The guest looks at what is free every two seconds, at a part of it. */
const LIMIT_MS = 120_000;
const KEPT = "head -c 8000000 /dev/urandom >/dev/shm/kept && sha256sum </dev/shm/kept";
const CHECK = "sha256sum </dev/shm/kept";

describe("the memory of a microVM", { timeout: 900_000 }, () => {
  let node: TestNode;
  before(async () => {
    node = await MICROVM.startNode({ words: ["--rest-after=2s"] });
    // The second has the template made that all others go on from.
    for (let made = 0; made < 2; made++) await (await create()).remove();
  });
  after(() => node[Symbol.asyncDispose]());

  const create = () => MICROVM.create(node, { resources: RESOURCES });
  const privateMiB = async (sandbox: Sandbox) => ((await sandbox.usage()).machine?.privateBytes ?? 0) / MIB;

  test("discarded pages punch holes into a template that all clones share: what a guest frees goes back to its node, and its siblings keep theirs", async () => {
    await using sandbox = await create();
    await using sibling = await create();
    const template = memoryOf(node, sandbox);
    assert.equal(memoryOf(node, sibling).inode, template.inode);
    assert.equal(template.access, "read", "no hole can be made through this descriptor");
    const asBefore = describeFile(template.path);
    const kept = await output(sibling, KEPT);
    const own = await output(sandbox, KEPT);

    const before = await privateMiB(sandbox);
    await output(sandbox, FILL);
    const full = await privateMiB(sandbox);
    assert.ok(full > before + FILLED_MIB - REST_MIB, `${before} MiB, then ${full} MiB`);
    await output(sandbox, "rm /dev/shm/filled");
    await waitUntil("its memory is back", LIMIT_MS, async () => (await privateMiB(sandbox)) < before + REST_MIB);

    assert.deepEqual(describeFile(template.path), asBefore);
    assert.equal(await output(sandbox, CHECK), own);
    assert.equal(await output(sibling, CHECK), kept);
    await using later = await create();
    assert.equal(memoryOf(node, later).inode, template.inode);
    assert.match(await output(later, KEPT), /^[0-9a-f]{64}/);
  });

  test("files that a guest keeps in memory go back when nobody uses the sandbox, and stay while something runs in it", async () => {
    await using sandbox = await create();
    await using busy = await create();
    const before = await privateMiB(sandbox);
    const line = `head -c ${FILE_MIB * MIB} /dev/urandom >/file && sync && sha256sum </file`;
    await busy.start("exec sleep 1000");
    const [digest, other] = [await output(sandbox, line), await output(busy, line)];
    await waitUntil("its memory is back", LIMIT_MS, async () => {
      const { memory } = await sandbox.usage();
      return memory.bytes < 16 * MIB && (await privateMiB(sandbox)) < before + FILE_MIB / 2;
    });
    assert.ok((await busy.usage()).memory.bytes > (FILE_MIB * MIB) / 2, "a file that may be in use");
    assert.equal(await output(sandbox, "sha256sum </file"), digest);
    assert.equal(await output(busy, "sha256sum </file"), other);
  });

  test("what has given memory back is used, paused, resumed and forked like any other, over and over", async () => {
    await using sandbox = await create();
    const kept = await output(sandbox, KEPT);
    const before = await privateMiB(sandbox);
    for (let round = 0; round < 2; round++) {
      const filled = await output(sandbox, `${FILL} && sha256sum </dev/shm/filled`);
      assert.equal(await output(sandbox, "sha256sum </dev/shm/filled"), filled);
      await output(sandbox, "rm /dev/shm/filled");
      await waitUntil("its memory is back", LIMIT_MS, async () => (await privateMiB(sandbox)) < before + REST_MIB);
      await sandbox.pause();
      assert.equal(await output(sandbox, CHECK), kept);
      assert.equal(memoryOf(node, sandbox).access, "read", "the memory file of its own");
    }
    const { forks } = await sandbox.fork({ count: 2 });
    for (const made of forks) {
      assert.ok("sandbox" in made);
      assert.equal(await output(made.sandbox, CHECK), kept);
      // Of a memory file that all forks of the instant map.
      await output(made.sandbox, `${FILL} && rm /dev/shm/filled /dev/shm/kept`);
    }
    assert.equal(await output(sandbox, CHECK), kept);
    for (const made of forks) if ("sandbox" in made) await made.sandbox.remove();
  });
});

interface MappedFile {
  readonly path: string;
  readonly inode: number;
  readonly access: "read" | "write";
}

/** The one file that the monitor has as its guest's memory. */
function memoryOf(node: TestNode, { id }: Sandbox): MappedFile {
  const { pid } = JSON.parse(readFileSync(join(node.runDir, "machines", id, "vmm.json"), "utf8")) as { pid: number };
  const held = readdirSync(`/proc/${pid}/fd`).filter((fd) => /\/memory$/.test(readlinkSync(`/proc/${pid}/fd/${fd}`)));
  assert.equal(held.length, 1, "one descriptor of a memory file");
  const path = `/proc/${pid}/fd/${held[0]}`;
  const flags = Number.parseInt(
    /^flags:\s*(\d+)$/m.exec(readFileSync(`/proc/${pid}/fdinfo/${held[0]}`, "utf8"))?.[1] ?? "",
    8,
  );
  return { path: readlinkSync(path), inode: statSync(path).ino, access: (flags & 3) === 0 ? "read" : "write" };
}

function describeFile(path: string) {
  const digest = createHash("sha256").update(readFileSync(path)).digest("hex");
  const { size, blocks, ino } = statSync(path);
  return { digest, size, blocks, ino };
}
