/** What one import may take. Every figure bounds memory or disk against hostile input. */
export interface ImportLimits {
  /** Inodes of a layer: about 300 bytes of memory each. */
  readonly entries: number;
  /** Names, link targets and attributes of a layer together. */
  readonly nameBytes: number;
  /** File data, holes included: of all layers together, and of the unpacked image archive. */
  readonly dataBytes: number;
}

/**
 * Far above what people run (64 GiB of data), far below what would harm a node: data is bounded further by what is free on
 * the disk, but zeros take no space there, and unpacking them forever would keep a processor busy.
 */
export const DEFAULT_LIMITS: ImportLimits = { entries: 2_000_000, nameBytes: 2 ** 29, dataBytes: 2 ** 36 };

/** A sandbox owns 65,536 ids; a file of any other would belong to nobody in it. */
export const MAX_ID = 65_535;
/** Attributes of one file; the kernel's own limit on one value. */
export const MAX_XATTR_BYTES = 65_535;
