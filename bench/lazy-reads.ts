import { execFile } from "node:child_process";
import { readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { MECHANISMS, type Mechanism } from "#host/lazy/requests.ts";
import { BLOB_FILES } from "#images/blobs/descriptor.ts";
import { hexOf, sha256Hex } from "#images/digest.ts";
import { openLayerMounts } from "#images/layers/mounts.ts";
import { LazyRig } from "#images/lazy/test-support/rig.ts";
import { directoryStore } from "#images/store/directory.ts";
import { openLayerStore } from "#images/store.ts";
import { archive, importBytes } from "#images/test-support/fixtures.ts";
import type { Measured } from "./measured.ts";
import { median, timeMs } from "./stats.ts";

const run = promisify(execFile);
const MIB = 2 ** 20;
const LARGE_MIB = 128;
const ROUNDS = 7;

/** MB/s of a file in a layer: one whose data never was away, and one that was, before and after the last of the layer came. */
interface Speeds {
  readonly plain: number;
  readonly cached: number;
  readonly complete: number;
  /** Median of the ratios of rounds, which met the same machine. */
  readonly completeShare: number;
}

/** Reads through lazy layers whose data is here, beside reads of a layer that never was lazy. */
export async function* measureReads(note: (line: string) => void): AsyncGenerator<Measured> {
  // A filler does not keep its node's process running, and nothing else does here.
  const awake = setInterval(() => undefined, 60_000);
  const speeds = new Map<Mechanism, Speeds>();
  for (const mechanism of MECHANISMS) {
    const found = await speedsOf(mechanism);
    speeds.set(mechanism, found);
    const { plain, cached, complete } = found;
    note(`${mechanism}: plain ${plain.toFixed(0)}, cached ${cached.toFixed(0)}, complete ${complete.toFixed(0)} MB/s`);
  }
  clearInterval(awake);
  const { fanotify, fuse } = Object.fromEntries(speeds);
  if (fanotify === undefined || fuse === undefined) return;
  const others = `over FUSE ${fuse.cached.toFixed(0)} MB/s`;
  yield { name: "images.read_cached", value: fanotify.cached, floor: fanotify.plain, note: others };
  yield { name: "images.read_complete", value: fanotify.completeShare, floor: fanotify.plain };
}

async function speedsOf(mechanism: Mechanism): Promise<Speeds> {
  await using rig = new LazyRig(mechanism);
  using store = await openLayerStore(join(rig.dir, "images"));
  const body = Buffer.concat(Array.from({ length: LARGE_MIB }, (_, at) => Buffer.alloc(MIB, sha256Hex(`part ${at}`))));
  const last = Buffer.alloc(MIB, "the last to come");
  const bytes = archive({ path: "large", body }, { path: "last", body: last });
  const { layers } = await importBytes(store, bytes);
  const plainMounts = await openLayerMounts({ store, runDir: join(rig.dir, "plain") });
  const [plain = ""] = await plainMounts.acquire(layers);
  for (const digest of layers) {
    for (const blob of (await store.manifest(digest)).blobs) {
      const dir = join(store.dir, "blobs", hexOf(blob.digest));
      for (const name of Object.values(BLOB_FILES)) {
        await rig.put(`blobs/${hexOf(blob.digest)}/${name}`, readFileSync(join(dir, name)));
      }
      rmSync(dir, { recursive: true });
    }
  }
  await using objects = directoryStore(rig.storeDir);
  const mounts = await openLayerMounts({ store, runDir: rig.runDir, remote: { objects, lazy: await rig.open() } });
  const [lazy = ""] = await mounts.acquire(layers);
  try {
    await speedOf(join(lazy, "large"));
    const cached = await compare(plain, lazy);
    await run("cksum", [join(lazy, "last")]);
    const complete = await compare(plain, lazy);
    const plains = [...cached, ...complete].map(({ floor }) => floor);
    return {
      plain: median(plains),
      cached: median(cached.map(({ value }) => value)),
      complete: median(complete.map(({ value }) => value)),
      completeShare: median(complete.map(({ value, floor }) => value / floor)),
    };
  } finally {
    mounts.unmountAll();
    plainMounts.unmountAll();
  }
}

async function compare(plain: string, lazy: string) {
  const rounds: { readonly floor: number; readonly value: number }[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    rounds.push({ floor: await speedOf(join(plain, "large")), value: await speedOf(join(lazy, "large")) });
  }
  return rounds;
}

/** MB/s of a read by a process of its own. What the mount has of the file in the page cache goes first; the data file's stays. */
async function speedOf(path: string): Promise<number> {
  await run("dd", [`if=${path}`, "iflag=nocache", "count=0", "status=none"]);
  const ms = await timeMs(() => run("dd", [`if=${path}`, "of=/dev/null", "bs=1M", "status=none"]));
  return (LARGE_MIB * MIB) / 1e3 / ms;
}
