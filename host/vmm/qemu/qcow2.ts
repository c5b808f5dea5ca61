import { closeSync, ftruncateSync, openSync, writeSync } from "node:fs";

const MAGIC = 0x514649fb;
const VERSION = 3;
const HEADER_BYTES = 104;
const CLUSTER_BITS = 16;
const CLUSTER_BYTES = 2 ** CLUSTER_BITS;
/** What one entry of the first table stands for: a cluster of entries, each of a cluster. */
const ENTRY_BYTES = CLUSTER_BYTES * (CLUSTER_BYTES / 8);
/** Counts of 16 bits. */
const COUNT_ORDER = 4;
const [COUNT_TABLE_AT, COUNTS_AT, TABLE_AT] = [CLUSTER_BYTES, 2 * CLUSTER_BYTES, 3 * CLUSTER_BYTES];

/** What those who read such a disk go by. */
export const QCOW2 = {
  headerBytes: HEADER_BYTES,
  clusterBits: CLUSTER_BITS,
  clusterBytes: CLUSTER_BYTES,
  /** Of the first table; of its entries, each stands for so much of the disk. */
  tableAt: TABLE_AT,
  entryBytes: ENTRY_BYTES,
} as const;

/**
 * Makes an empty qcow2 disk of a size: what is not written to it is read from what QEMU is told lies below, or is zeros. It names no other file: whoever opens it
 * decides what is below.
 */
export function makeQcow2(path: string, sizeBytes: number): void {
  const entries = Math.ceil(sizeBytes / ENTRY_BYTES);
  const tableClusters = Math.max(1, Math.ceil((entries * 8) / CLUSTER_BYTES));
  const header = Buffer.alloc(HEADER_BYTES);
  header.writeUInt32BE(MAGIC, 0);
  header.writeUInt32BE(VERSION, 4);
  header.writeUInt32BE(CLUSTER_BITS, 20);
  header.writeBigUInt64BE(BigInt(sizeBytes), 24);
  header.writeUInt32BE(entries, 36);
  header.writeBigUInt64BE(BigInt(TABLE_AT), 40);
  header.writeBigUInt64BE(BigInt(COUNT_TABLE_AT), 48);
  header.writeUInt32BE(1, 56);
  header.writeUInt32BE(COUNT_ORDER, 96);
  header.writeUInt32BE(HEADER_BYTES, 100);
  const countTable = Buffer.alloc(8);
  countTable.writeBigUInt64BE(BigInt(COUNTS_AT));
  const clusters = 3 + tableClusters;
  const counts = Buffer.alloc(2 * clusters);
  for (let cluster = 0; cluster < clusters; cluster++) counts.writeUInt16BE(1, 2 * cluster);
  const fd = openSync(path, "wx", 0o600);
  try {
    writeSync(fd, header, 0, header.length, 0);
    writeSync(fd, countTable, 0, countTable.length, COUNT_TABLE_AT);
    writeSync(fd, counts, 0, counts.length, COUNTS_AT);
    ftruncateSync(fd, clusters * CLUSTER_BYTES);
  } finally {
    closeSync(fd);
  }
}
