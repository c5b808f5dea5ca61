/** One thing in an archive for the kernel to unpack. Paths have no slash in front; folders come before what is in them. */
export type CpioEntry =
  | { readonly path: string; readonly type: "directory" }
  | { readonly path: string; readonly type: "file"; readonly mode: number; readonly bytes: Uint8Array }
  | { readonly path: string; readonly type: "device"; readonly major: number; readonly minor: number };

const [DIRECTORY, FILE, DEVICE] = [0o040755, 0o100000, 0o020600];
const ALIGNMENT = 4;

/** An initial file system in the one form that every kernel takes: cpio's "newc". Everything in it is root's. */
export function cpioArchive(entries: readonly CpioEntry[]): Buffer {
  const parts = entries.flatMap((entry, index) => member(entry, index + 1));
  return Buffer.concat([...parts, ...header({ path: "TRAILER!!!", inode: 0, mode: 0, size: 0, device: [0, 0] })]);
}

function member(entry: CpioEntry, inode: number): readonly Buffer[] {
  const none = [0, 0] as const;
  switch (entry.type) {
    case "directory":
      return header({ path: entry.path, inode, mode: DIRECTORY, size: 0, device: none });
    case "device":
      return header({ path: entry.path, inode, mode: DEVICE, size: 0, device: [entry.major, entry.minor] });
    case "file":
      return [
        ...header({ path: entry.path, inode, mode: FILE | entry.mode, size: entry.bytes.length, device: none }),
        padded(Buffer.from(entry.bytes)),
      ];
  }
}

interface Header {
  readonly path: string;
  readonly inode: number;
  readonly mode: number;
  readonly size: number;
  readonly device: readonly [major: number, minor: number];
}

/** Thirteen numbers of eight hexadecimal digits: inode, mode, uid, gid, links, mtime, size, device, rdevice, length of the name, sum. */
function header({ path, inode, mode, size, device }: Header): readonly Buffer[] {
  const name = Buffer.from(`${path}\0`);
  const fields = [inode, mode, 0, 0, 1, 0, size, 0, 0, ...device, name.length, 0];
  const text = fields.map((field) => field.toString(16).padStart(8, "0")).join("");
  return [padded(Buffer.concat([Buffer.from(`070701${text}`), name]))];
}

function padded(bytes: Buffer): Buffer {
  const rest = bytes.length % ALIGNMENT;
  return rest === 0 ? bytes : Buffer.concat([bytes, Buffer.alloc(ALIGNMENT - rest)]);
}
