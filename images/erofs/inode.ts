import type { FileType } from "#core/sandbox.ts";
import type { Attributes, ByteString } from "#core/tar/entry.ts";

/** What an inode is, by its type. */
export type Content =
  | { readonly type: "directory"; readonly children: Map<ByteString, Inode> }
  /** `chunks`: where each lies, see `chunkAddress`; `HOLE` for zeros. */
  | { readonly type: "file"; readonly size: number; readonly chunks: number[] }
  | { readonly type: "symlink"; readonly target: ByteString }
  | { readonly type: "character-device" | "block-device"; readonly major: number; readonly minor: number }
  | { readonly type: "fifo" | "socket" };

/** One file of the tree that becomes an image. A file with two names is one inode in two directories. */
export class Inode {
  attributes: Attributes;
  readonly content: Content;
  /** Set by the planner: names that refer to it, and its place in the image. */
  links = 0;
  nid = 0;

  constructor(attributes: Attributes, content: Content) {
    this.attributes = attributes;
    this.content = content;
  }

  get type(): FileType {
    return this.content.type;
  }
}

const TYPE_BITS: Readonly<Record<FileType, number>> = {
  fifo: 0o010000,
  "character-device": 0o020000,
  directory: 0o040000,
  "block-device": 0o060000,
  file: 0o100000,
  symlink: 0o120000,
  socket: 0o140000,
};

const TYPE_MASK = 0o170000;
// The keys are those of the record.
const FILE_TYPES_BY_BITS = new Map(Object.entries(TYPE_BITS).map(([type, bits]) => [bits, type as FileType]));

const DIRENT_TYPES: Readonly<Record<FileType, number>> = {
  file: 1,
  directory: 2,
  "character-device": 3,
  "block-device": 4,
  fifo: 5,
  socket: 6,
  symlink: 7,
};

/** `st_mode`: type and permission bits. */
export function modeBits(inode: Inode): number {
  return TYPE_BITS[inode.type] | inode.attributes.mode;
}

/** The type in a `st_mode`; `undefined` for none. */
export function typeOfMode(mode: number): FileType | undefined {
  return FILE_TYPES_BY_BITS.get(mode & TYPE_MASK);
}

/** The type code that directories repeat. */
export function direntType(inode: Inode): number {
  return DIRENT_TYPES[inode.type];
}
