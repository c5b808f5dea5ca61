import { execFileSync } from "node:child_process";
import { closeSync, mkdtempSync, openSync, readSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { importArtifact } from "#images/import.ts";
import { openLayerStore } from "#images/store.ts";
import type { Measured } from "./measured.ts";
import { median } from "./stats.ts";

/** What is packed: libraries and data of this machine. */
const TREES = "usr/lib/x86_64-linux-gnu usr/share/doc usr/share/perl usr/lib/python3";
const ROUNDS = 3;
const PIECE_BYTES = 2 ** 18;

/**
 * A tar into an empty store, in turn with unpacking it and `mkfs.erofs` with a data device. In MB of the archive for each second
 * of processor time, all threads together: a busy machine and waiting for its disk do not count.
 */
export async function* measureWriter(note: (line: string) => void): AsyncGenerator<Measured> {
  const folder = mkdtempSync(join(tmpdir(), "dsec-writer-"));
  try {
    const tar = join(folder, "tree.tar");
    // Names that this machine lacks are no reason to stop.
    shell(`tar -C / -cf ${tar} ${TREES} 2>/dev/null || true`);
    const megabytes = statSync(tar).size / 1e6;
    const rates: { ours: number; peer: number }[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      const ours = megabytes / (await importSeconds(tar, join(folder, "store")));
      const peer = megabytes / mkfsSeconds(tar, folder);
      note(
        `writer: ${ours.toFixed(0)} MB/s, tar -x and mkfs.erofs ${peer.toFixed(0)} MB/s, ${megabytes.toFixed(0)} MB`,
      );
      rates.push({ ours, peer });
    }
    const peers = { "mkfs.erofs": median(rates.map(({ peer }) => peer)) };
    yield { name: "layers.writer", value: median(rates.map(({ ours }) => ours)), peers };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function importSeconds(tar: string, dir: string): Promise<number> {
  using store = await openLayerStore(dir);
  const before = process.cpuUsage();
  await importArtifact({ store, source: piecesOf(tar), format: "tar" });
  const { user, system } = process.cpuUsage(before);
  rmSync(dir, { recursive: true });
  return (user + system) / 1e6;
}

/** One buffer for all pieces: what is measured is the writer, not its source. */
async function* piecesOf(path: string): AsyncGenerator<Uint8Array> {
  const fd = openSync(path, "r");
  const buffer = Buffer.allocUnsafe(PIECE_BYTES);
  try {
    for (;;) {
      const count = readSync(fd, buffer, 0, PIECE_BYTES, null);
      if (count === 0) return;
      yield buffer.subarray(0, count);
    }
  } finally {
    closeSync(fd);
  }
}

function mkfsSeconds(tar: string, folder: string): number {
  const [tree, image, data] = ["tree", "image", "data"].map((name) => join(folder, name));
  const work = `mkdir ${tree} && tar -C ${tree} -xf ${tar} && mkfs.erofs --quiet --chunksize=1048576 --blobdev=${data} ${image} ${tree} && sync ${data}`;
  const times = shell(`TIMEFORMAT='%U %S'; { time { ${work}; } >/dev/null 2>&1; } 2>&1`);
  shell(`rm -rf ${tree} ${image} ${data}`);
  return times
    .trim()
    .split(" ")
    .map(Number)
    .reduce((sum, seconds) => sum + seconds, 0);
}

function shell(line: string): string {
  return execFileSync("bash", ["-c", line], { encoding: "utf8", env: { ...process.env, LC_ALL: "C" } });
}
