import { type Duplex, Readable } from "node:stream";
import { createGunzip, createZstdDecompress } from "node:zlib";
import { badInput } from "#core/tar/entry.ts";
import { openDecompressor } from "#host/decompressor.ts";

type Bytes = AsyncIterable<Uint8Array>;

/** Output pieces of this size keep the cost of a turn low without stalling the event loop. */
const PIECE_BYTES = 256 * 1024;

const MAGICS: readonly { readonly name: string; readonly magic: readonly number[]; readonly open?: () => Duplex }[] = [
  { name: "gzip", magic: [0x1f, 0x8b], open: () => createGunzip({ chunkSize: PIECE_BYTES }) },
  { name: "zstd", magic: [0x28, 0xb5, 0x2f, 0xfd], open: () => createZstdDecompress({ chunkSize: PIECE_BYTES }) },
  { name: "xz", magic: [0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00], open: () => openDecompressor("xz") },
  { name: "bzip2", magic: [0x42, 0x5a, 0x68], open: () => openDecompressor("bzip2") },
  { name: "zip", magic: [0x50, 0x4b, 0x03, 0x04] },
];
const LONGEST_MAGIC = 6;

/**
 * The plain bytes of a stream that is plain, gzip, zstd, xz or bzip2 by its first bytes. Damage is an `InvalidArgument`; errors of the
 * source itself pass through as they are. Ending the iteration ends the source.
 */
export async function* decompressed(source: Bytes): Bytes {
  const iterator = source[Symbol.asyncIterator]();
  let isDone = false;
  try {
    let head: Buffer = Buffer.alloc(0);
    while (head.length < LONGEST_MAGIC && !isDone) {
      const next = await iterator.next();
      isDone = next.done === true;
      if (next.done !== true) head = Buffer.concat([head, next.value]);
    }
    const format = MAGICS.find(({ magic }) => magic.every((byte, index) => head[index] === byte));
    if (format !== undefined && format.open === undefined) {
      throw badInput(
        `the archive is compressed with ${format.name}`,
        "send a tar, plain or compressed with gzip, zstd, xz or bzip2",
      );
    }
    const whole = rest(head, iterator);
    yield* format?.open === undefined ? whole : inflate(whole, format.open(), format.name);
    isDone = true;
  } finally {
    // A source that waits for its sender would hold us here: it is told to end, not waited for.
    if (!isDone) iterator.return?.().catch(() => undefined);
  }
}

async function* rest(head: Uint8Array, iterator: AsyncIterator<Uint8Array>): Bytes {
  if (head.length > 0) yield head;
  for (;;) {
    const next = await iterator.next();
    if (next.done === true) return;
    yield next.value;
  }
}

async function* inflate(source: Bytes, inflater: Duplex, name: string): Bytes {
  let sourceError: { readonly error: unknown } | undefined;
  const input = Readable.from(source, { objectMode: true });
  input.on("error", (error) => {
    sourceError = { error };
    inflater.destroy(error);
  });
  input.pipe(inflater);
  try {
    yield* inflater;
  } catch (error) {
    if (sourceError !== undefined) throw sourceError.error;
    throw badInput(`the ${name} stream of the archive is damaged or cut off`, "send the whole file again", error);
  } finally {
    input.destroy();
    inflater.destroy();
  }
}
