import { Batch } from "#core/tar/batch.ts";
import { type ByteString, badInput, shown } from "#core/tar/entry.ts";
import { endOfArchive, type TarEntry, tarHeader, tarPadding } from "#core/tar/writer.ts";
import { CHUNK_BYTES, HOLE } from "../erofs/format.ts";
import type { Inode } from "../erofs/inode.ts";
import { isOpaque, isWhiteout } from "../layers/whiteouts.ts";
import type { OpenLayer } from "./content.ts";

const ZEROS = Buffer.alloc(CHUNK_BYTES);
/** Attributes that only mean something to an overlay. */
const OF_AN_OVERLAY = "trusted.overlay.";

/**
 * A layer as a tar archive of an OCI image: directories before what they hold, names in byte order, what an overlay hides as
 * whiteouts. The same layer gives the same bytes. Throws `InvalidArgument` for a name that OCI reads as a whiteout.
 */
export async function* layerTar({ root, read }: Pick<OpenLayer, "root" | "read">): AsyncGenerator<Uint8Array> {
  const batch = new Batch();
  const named = new Map<Inode, ByteString>();
  for (const { path, inode } of walk(root)) {
    const first = named.get(inode);
    for (const part of headersOf(path, inode, first)) {
      const full = batch.add(part);
      if (full !== undefined) yield full;
    }
    const { content } = inode;
    if (content.type !== "directory") named.set(inode, first ?? path);
    if (content.type !== "file" || first !== undefined) continue;
    for (const [index, address] of content.chunks.entries()) {
      const bytes = Math.min(CHUNK_BYTES, content.size - index * CHUNK_BYTES);
      const full = batch.add(address === HOLE ? ZEROS.subarray(0, bytes) : await read(address, bytes));
      if (full !== undefined) yield full;
    }
    batch.push(tarPadding(content.size));
  }
  batch.push(endOfArchive());
  yield batch.take();
}

interface Found {
  readonly path: ByteString;
  readonly inode: Inode;
}

/** Depth first, a directory before its names. A list instead of recursion: depth is whoever's made the tree. */
function* walk(root: Inode): Generator<Found> {
  const pending: Found[] = [{ path: "", inode: root }];
  for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
    yield next;
    const { content } = next.inode;
    if (content.type !== "directory") continue;
    const prefix = next.path === "" ? "" : `${next.path}/`;
    const names = [...content.children].sort(([a], [b]) => (a < b ? 1 : -1));
    for (const [name, inode] of names) pending.push({ path: prefix + name, inode });
  }
}

/** The header of an entry; before what an opaque directory holds, the mark. */
function* headersOf(path: ByteString, inode: Inode, first: ByteString | undefined): Generator<Uint8Array> {
  const cut = path.lastIndexOf("/") + 1;
  const [parent, name] = [path.slice(0, cut), path.slice(cut)];
  if (name.startsWith(".wh.")) {
    throw badInput(`${shown(path)} cannot be exported: in an OCI image its name means a deletion`, "rename it");
  }
  if (inode.type === "socket") return;
  if (isWhiteout(inode)) {
    yield tarHeader(marker(`${parent}.wh.${name}`));
    return;
  }
  yield tarHeader(entryOf(path, inode, first));
  if (isOpaque(inode)) yield tarHeader(marker(`${path === "" ? "" : `${path}/`}.wh..wh..opq`));
}

function entryOf(path: ByteString, { attributes, content }: Inode, first: ByteString | undefined): TarEntry {
  const { mode, uid, gid, mtimeS, mtimeNs, xattrs } = attributes;
  if (content.type === "socket") throw new Error("an archive holds no sockets");
  const target = first ?? (content.type === "symlink" ? content.target : undefined);
  const kept = new Map([...(xattrs ?? [])].filter(([name]) => !name.startsWith(OF_AN_OVERLAY)));
  return {
    type: first === undefined ? content.type : "link",
    name: Buffer.from(content.type === "directory" ? `${path === "" ? "." : path}/` : path, "latin1"),
    ...{ mode, uid, gid },
    size: content.type === "file" && first === undefined ? content.size : 0,
    mtimeNs: BigInt(mtimeS) * 1_000_000_000n + BigInt(mtimeNs),
    target: target === undefined ? undefined : Buffer.from(target, "latin1"),
    device: "major" in content ? deviceNumber(content) : 0,
    xattrs: first === undefined ? kept : undefined,
  };
}

/** glibc's makedev. */
function deviceNumber({ major, minor }: { readonly major: number; readonly minor: number }): number {
  return ((minor & 0xff) | (major << 8) | ((minor & ~0xff) << 12)) >>> 0;
}

function marker(path: ByteString): TarEntry {
  const plain = { mode: 0, uid: 0, gid: 0, size: 0, mtimeNs: 0n, target: undefined, device: 0 };
  return { type: "file", name: Buffer.from(path, "latin1"), ...plain };
}
