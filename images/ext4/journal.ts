import { damaged } from "./format.ts";

/** Of ours it has 1,024. */
export const MOST_JOURNAL_BLOCKS = 65_536;
/** Blocks that may be revoked in all: as many as ours has room for. */
const MOST_REVOKED = 2 ** 20;
/** Begins every block of the journal that is none of the file system. */
export const MAGIC_BYTES: Uint8Array = Buffer.from("c03b3998", "hex");

const MAGIC = 0xc03b3998;
const [DESCRIPTOR, COMMIT, SUPERBLOCK, REVOKE] = [1, 2, 4, 5];
const FEATURES = { revoke: 0x1, wide: 0x2, checksum2: 0x8, checksum3: 0x10 } as const;
const KNOWN = FEATURES.revoke | FEATURES.wide | FEATURES.checksum2 | FEATURES.checksum3;
const TAG = { escaped: 1, sameUuid: 2, deleted: 4, last: 8 } as const;
const [HEADER_BYTES, REVOKE_HEADER_BYTES, UUID_BYTES, TAIL_BYTES] = [12, 16, 16, 4];

/** Where the journal has a block of the file system. */
export interface JournalBlock {
  /** Block of the disk. */
  readonly place: number;
  /** Its first bytes looked like one of the journal's own, and were taken out. */
  readonly escaped: boolean;
}

/** A journal by its blocks on the disk, in their order. */
export interface JournalSource {
  readonly blockBytes: number;
  readonly places: readonly number[];
  block(place: number): Promise<Buffer>;
}

/** The journal's own superblock. */
interface Shape {
  readonly first: number;
  readonly end: number;
  /** Block and number of the first transaction; undefined: there is none. */
  readonly start: number | undefined;
  readonly sequence: number;
  readonly features: number;
}

/** One transaction, as it lies in the journal. */
interface Transaction {
  readonly sequence: number;
  readonly blocks: Map<number, JournalBlock>;
  readonly revoked: Set<number>;
}

/**
 * What a mount would write to the file system before it is used: the newest of each block in transactions that were committed, but those that were revoked
 * later. Numbers are blocks of the file system. Throws `FailedPrecondition` for a journal of a form that is not known.
 */
export async function readJournal(source: JournalSource): Promise<ReadonlyMap<number, JournalBlock>> {
  const shape = readShape(await blockAt(source, 0), source.places.length);
  const found = new Map<number, JournalBlock>();
  for (const { blocks, revoked } of await transactions(source, shape)) {
    for (const block of revoked) found.delete(block);
    for (const [block, place] of blocks) if (!revoked.has(block)) found.set(block, place);
  }
  return found;
}

function readShape(block: Buffer, blocks: number): Shape {
  const [first, end, start] = [block.readUInt32BE(0x14), block.readUInt32BE(0x10), block.readUInt32BE(0x1c)];
  const features = block.readUInt32BE(0x28);
  if (block.readUInt32BE(0) !== MAGIC || block.readUInt32BE(4) !== SUPERBLOCK) throw damaged("it has no journal");
  if ((features & ~KNOWN) !== 0) throw damaged(`its journal has features ${features.toString(16)}`);
  if (first < 1 || end > blocks || first >= end || start >= end) throw damaged("its journal reaches beyond itself");
  return { first, end, start: start === 0 ? undefined : start, sequence: block.readUInt32BE(0x18), features };
}

/** Those that were committed, oldest first. */
async function transactions(source: JournalSource, shape: Shape): Promise<readonly Transaction[]> {
  const committed: Transaction[] = [];
  if (shape.start === undefined) return committed;
  let at = shape.start;
  let current = empty(shape.sequence);
  let revoked = 0;
  // More blocks than there are would be some for the second time.
  for (let seen = 0; seen < shape.end; seen += 1) {
    const block = await blockAt(source, at);
    if (block.readUInt32BE(0) !== MAGIC || block.readUInt32BE(8) !== current.sequence) break;
    const type = block.readUInt32BE(4);
    at = after(at, shape);
    if (type === DESCRIPTOR) {
      const tags = [...readTags(block, shape.features)];
      seen += tags.length;
      for (const { block: number, escaped, deleted } of tags) {
        const place = source.places[at] ?? 0;
        if (!deleted) current.blocks.set(number, { place, escaped });
        at = after(at, shape);
      }
    } else if (type === REVOKE) {
      for (const number of readRevoked(block, shape.features)) {
        if (++revoked > MOST_REVOKED) throw damaged("its journal revokes more than it has room for");
        current.revoked.add(number);
      }
    } else if (type === COMMIT) {
      committed.push(current);
      current = empty((current.sequence + 1) >>> 0);
    } else {
      break;
    }
  }
  return committed;
}

function empty(sequence: number): Transaction {
  return { sequence, blocks: new Map(), revoked: new Set() };
}

function after(at: number, { first, end }: Shape): number {
  return at + 1 === end ? first : at + 1;
}

async function blockAt({ places, block }: JournalSource, at: number): Promise<Buffer> {
  const place = places[at];
  if (place === undefined) throw damaged("its journal is cut off");
  return await block(place);
}

function* readTags(block: Buffer, features: number) {
  const isWide = (features & FEATURES.wide) !== 0;
  const hasThree = (features & FEATURES.checksum3) !== 0;
  const hasTail = hasThree || (features & FEATURES.checksum2) !== 0;
  const plain = (isWide ? 12 : 8) + (hasTail ? 2 : 0);
  const bytes = hasThree ? 16 : plain;
  const end = block.length - (hasTail ? TAIL_BYTES : 0);
  for (let at = HEADER_BYTES; at + bytes <= end; ) {
    const flags = hasThree ? block.readUInt32BE(at + 4) : block.readUInt16BE(at + 6);
    const high = isWide ? block.readUInt32BE(at + 8) : 0;
    const number = block.readUInt32BE(at) + high * 2 ** 32;
    yield { block: number, escaped: (flags & TAG.escaped) !== 0, deleted: (flags & TAG.deleted) !== 0 };
    if ((flags & TAG.last) !== 0) return;
    at += bytes + ((flags & TAG.sameUuid) === 0 ? UUID_BYTES : 0);
  }
}

function* readRevoked(block: Buffer, features: number): Generator<number, void, undefined> {
  const isWide = (features & FEATURES.wide) !== 0;
  const bytes = isWide ? 8 : 4;
  const end = Math.min(block.readUInt32BE(HEADER_BYTES), block.length);
  for (let at = REVOKE_HEADER_BYTES; at + bytes <= end; at += bytes) {
    yield isWide ? block.readUInt32BE(at) * 2 ** 32 + block.readUInt32BE(at + 4) : block.readUInt32BE(at);
  }
}
