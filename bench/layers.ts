import type { TestNode } from "#tests/support/node.ts";
import { BASE, output, startNodeWithBase } from "#tests/support/sandbox.ts";
import { writtenBytes } from "./disk.ts";
import type { Measured } from "./measured.ts";
import { gzipped, sourceTree, tarOf } from "./source-tree.ts";
import { inParallel, timeMs } from "./stats.ts";
import { measureWriter } from "./writer.ts";

/** The paper's comparison in small. */
const SANDBOXES = 64;
const WIDTH = 16;
const WORKSPACE = { files: 8_000, bytes: 80_000_000, at: "repo" };
const TOOLKIT = { files: 2_000, bytes: 20_000_000, at: "opt/kit" };

/** What an agent's test does: it looks at every name, reads a part, and leaves a result. */
const TEST =
  "find /repo /opt/kit -type f | wc -l; cat /repo/d1*/* /opt/kit/d2*/* | wc -c; dd if=/dev/zero of=/root/result bs=1k count=100 2>/dev/null";

interface Run {
  readonly tookMs: number;
  readonly writtenBytes: number;
}

/** The speed of the writer; then sandboxes with workspace and toolkit as layers, against each unpacking its own archives. */
export async function* measureLayers(note: (line: string) => void): AsyncGenerator<Measured> {
  yield* measureWriter(note);
  await using node = await startNodeWithBase({ words: ["--memory-overcommit=1000", "--cpu-overcommit=1000"] });
  await prepare(node);
  const archives = await run(node, ["archives"], `cd / && for f in /archives/*; do tar -xzf $f; done; ${TEST}`);
  const layers = await run(node, ["workspace", "toolkit"], TEST);
  note(`archives: ${describe(archives)}\nlayers: ${describe(layers)}`);
  yield {
    name: "layers.vs_tar",
    value: archives.tookMs / layers.tookMs,
    peers: { "tar.gz": archives.tookMs },
    note: `layers ${layers.tookMs.toFixed(0)} ms for ${SANDBOXES} sandboxes, ${WIDTH} at a time`,
  };
  yield {
    name: "layers.write_share",
    value: layers.writtenBytes / archives.writtenBytes,
    note: `${(layers.writtenBytes / 1e6).toFixed(1)} MB against ${(archives.writtenBytes / 1e6).toFixed(1)} MB`,
  };
}

/** The archives lie in a layer, so that nobody has to send them: the cheapest way to unpack them. */
async function prepare(node: TestNode): Promise<void> {
  const { artifacts } = node.client;
  const [workspace, toolkit] = [tarOf(sourceTree(WORKSPACE)), tarOf(sourceTree(TOOLKIT))];
  await artifacts.import(workspace, { name: "workspace", kind: "workspace" });
  await artifacts.import(toolkit, { name: "toolkit", kind: "toolkit" });
  const archives = { "archives/1.tar.gz": gzipped(workspace), "archives/2.tar.gz": gzipped(toolkit) };
  await artifacts.import(tarOf(Object.entries(archives)), { name: "archives", kind: "toolkit" });
}

/** From the first create to the end of the last test; removals come after. */
async function run(node: TestNode, toolkits: readonly string[], line: string): Promise<Run> {
  const workspace = toolkits.includes("workspace") ? { workspace: "workspace" } : {};
  const request = { base: BASE, ...workspace, toolkits: toolkits.filter((name) => name !== "workspace") };
  await using made = new AsyncDisposableStack();
  const before = writtenBytes(node.runDir);
  const tookMs = await timeMs(async () => {
    await inParallel(SANDBOXES, WIDTH, async () => {
      const sandbox = made.use(await node.client.sandboxes.create(request));
      const [files] = (await output(sandbox, line)).split("\n");
      if (Number(files) !== WORKSPACE.files + TOOLKIT.files) throw new Error(`a sandbox has ${files} files`);
    });
  });
  return { tookMs, writtenBytes: writtenBytes(node.runDir) - before };
}

function describe({ tookMs, writtenBytes: bytes }: Run): string {
  return `${tookMs.toFixed(0)} ms, ${(bytes / 1e6).toFixed(1)} MB written`;
}
