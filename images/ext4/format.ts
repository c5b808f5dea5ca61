import { SandboxError } from "#core/errors.ts";

/** Where the superblock lies, and how much of it is read. */
export const SUPERBLOCK = { offset: 1024, bytes: 1024 } as const;
const MAGIC = 0xef53;

/** Features without which a reader would read something else than what is there. */
const INCOMPATIBLE = {
  filetype: 0x2,
  recover: 0x4,
  extents: 0x40,
  wide: 0x80,
  flexibleGroups: 0x200,
  checksumSeed: 0x2000,
  largeDirectory: 0x4000,
} as const;
const KNOWN = Object.values(INCOMPATIBLE).reduce((all, one) => all | one, 0);
const FAST_COMMIT = 0x400;
/** Of ours; larger ones have no use here, and more memory than a node gives. */
const BLOCK_SIZES = [1024, 2048, 4096];
const [SMALL_DESCRIPTOR, SMALL_INODE] = [32, 128];

/** What a superblock says, checked. */
export interface Superblock {
  readonly blockBytes: number;
  readonly blocks: number;
  readonly firstBlock: number;
  readonly blocksPerGroup: number;
  readonly inodesPerGroup: number;
  readonly inodes: number;
  readonly inodeBytes: number;
  readonly descriptorBytes: number;
  /** Number of the inode that holds the journal, if there is something in it. */
  readonly journal: number | undefined;
}

/** What nobody who only writes to the file system can have made. */
export function damaged(what: string): SandboxError {
  return new SandboxError("FailedPrecondition", `the file system of the sandbox's disk is damaged: ${what}`, {
    hint: "read what is left of it with files",
  });
}

/** Reads a superblock, of a disk of that size. Throws `FailedPrecondition` for what is none, or has features that are not known. */
export function readSuperblock(bytes: Buffer, diskBytes: number): Superblock {
  if (bytes.readUInt16LE(0x38) !== MAGIC) throw damaged("it has no superblock");
  const incompatible = bytes.readUInt32LE(0x60);
  if ((incompatible & ~KNOWN) !== 0 || (incompatible & INCOMPATIBLE.extents) === 0)
    throw damaged(`it has features ${incompatible.toString(16)}`);
  const isWide = (incompatible & INCOMPATIBLE.wide) !== 0;
  const needsJournal = (incompatible & INCOMPATIBLE.recover) !== 0;
  if (needsJournal && (bytes.readUInt32LE(0x5c) & FAST_COMMIT) !== 0) throw damaged("it has fast commits");
  const read: Superblock = {
    blockBytes: 1024 << Math.min(bytes.readUInt32LE(0x18), 16),
    blocks: bytes.readUInt32LE(0x4) + (isWide ? bytes.readUInt32LE(0x150) * 2 ** 32 : 0),
    firstBlock: bytes.readUInt32LE(0x14),
    blocksPerGroup: bytes.readUInt32LE(0x20),
    inodesPerGroup: bytes.readUInt32LE(0x28),
    inodes: bytes.readUInt32LE(0),
    inodeBytes: bytes.readUInt16LE(0x58),
    descriptorBytes: isWide ? bytes.readUInt16LE(0xfe) : SMALL_DESCRIPTOR,
    journal: needsJournal ? bytes.readUInt32LE(0xe0) : undefined,
  };
  check(read, diskBytes);
  return read;
}

function check(read: Superblock, diskBytes: number): void {
  const { blockBytes, inodeBytes, descriptorBytes } = read;
  const isWhole = (bytes: number, least: number) =>
    bytes >= least && bytes <= blockBytes && (bytes & (bytes - 1)) === 0;
  if (!BLOCK_SIZES.includes(blockBytes)) throw damaged("the size of its blocks");
  if (read.blocks * blockBytes > diskBytes || read.firstBlock > 1) throw damaged("it is larger than its disk");
  if (read.blocksPerGroup === 0 || read.inodesPerGroup === 0) throw damaged("its groups are empty");
  if (!isWhole(inodeBytes, SMALL_INODE)) throw damaged("the size of its inodes");
  if (!isWhole(descriptorBytes, SMALL_DESCRIPTOR)) throw damaged("the size of its groups' descriptors");
}
