/** Fields of a tar header; what is left out is that of an empty file of root. */
export interface Member {
  readonly path: string | Buffer;
  readonly flag?: string;
  readonly body?: string | Buffer;
  readonly size?: number;
  readonly mode?: number;
  readonly uid?: number;
  readonly gid?: number;
  readonly mtime?: number;
  readonly target?: string | Buffer;
  readonly device?: readonly [major: number, minor: number];
  readonly magic?: string;
}

/** One member as bytes: header, body, padding. */
export function member(fields: Member): Buffer {
  const header = Buffer.alloc(512);
  const body = Buffer.from(fields.body ?? "");
  Buffer.from(fields.path).copy(header, 0, 0, 100);
  const octal = (value: number, at: number, length: number): void => {
    if (value >= 0 && value < 8 ** (length - 1))
      header.write(value.toString(8).padStart(length - 1, "0"), at, "latin1");
    else header.set(base256(value, length), at);
  };
  octal(fields.mode ?? 0o644, 100, 8);
  octal(fields.uid ?? 0, 108, 8);
  octal(fields.gid ?? 0, 116, 8);
  octal(fields.size ?? body.length, 124, 12);
  octal(fields.mtime ?? 0, 136, 12);
  header.write(fields.flag ?? "0", 156, "latin1");
  Buffer.from(fields.target ?? "").copy(header, 157, 0, 100);
  header.write(fields.magic ?? "ustar\x0000", 257, "latin1");
  octal(fields.device?.[0] ?? 0, 329, 8);
  octal(fields.device?.[1] ?? 0, 337, 8);
  header.fill(0x20, 148, 156);
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, "latin1");
  return Buffer.concat([header, body, Buffer.alloc((512 - (body.length % 512)) % 512)]);
}

/** A pax header for the member after it. */
export function pax(records: Readonly<Record<string, string | Buffer>>, flag: "x" | "g" = "x"): Buffer {
  const lines = Object.entries(records).map(([key, value]) => {
    const rest = Buffer.concat([Buffer.from(` ${key}=`), Buffer.from(value), Buffer.from("\n")]);
    let length = rest.length + 1;
    while (String(length).length + rest.length !== length) length = String(length).length + rest.length;
    return Buffer.concat([Buffer.from(String(length)), rest]);
  });
  return member({ path: "pax", flag, body: Buffer.concat(lines) });
}

/** A whole archive of these parts. */
export function archive(...parts: readonly (Member | Buffer)[]): Buffer {
  return Buffer.concat([...parts.map((part) => (Buffer.isBuffer(part) ? part : member(part))), Buffer.alloc(1024)]);
}

function base256(value: number, length: number): Uint8Array {
  const bytes = Buffer.alloc(length);
  let rest = BigInt.asUintN(8 * length, BigInt(value));
  for (let index = length - 1; index >= 0; index--) {
    bytes[index] = Number(rest & 0xffn);
    rest >>= 8n;
  }
  bytes[0] = value < 0 ? 0xff : 0x80;
  return bytes;
}
