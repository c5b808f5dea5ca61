import { badInput } from "#core/tar/entry.ts";
import { decompressed } from "../archive/decompress.ts";
import type { Pieces } from "./pieces.ts";

/** The archives in a package; each must be read to its end before the next is asked for. */
export interface PackageMember {
  readonly name: "control" | "data";
  /** A plain tar. */
  readonly tar: AsyncIterable<Uint8Array>;
}

/** Begins every package, as every ar archive. */
export const DEB_MAGIC = "!<arch>\n";
const HEADER_BYTES = 60;
const HEADER_END = "`\n";
/** `debian-binary` holds a version and what later versions of the format may add. */
const MAX_VERSION_BYTES = 1024;
const MEMBER = /^(control|data)\.tar(?:\.(?:gz|xz|zst|bz2))?$/;

interface Header {
  readonly name: string;
  readonly sizeBytes: number;
}

/**
 * Reads one package of the format 2.0: its control archive, then its data archive. Members whose names begin with `_` are passed
 * over, as dpkg does. Throws `InvalidArgument` for whatever else is in it.
 */
export async function* packageMembers(pieces: Pieces): AsyncGenerator<PackageMember> {
  if ((await pieces.exactly(DEB_MAGIC.length)).toString("latin1") !== DEB_MAGIC) throw damaged("it is no ar archive");
  await checkVersion(pieces);
  for (const wanted of ["control", "data"] as const) {
    const { name, sizeBytes } = await nextHeader(pieces);
    if (MEMBER.exec(name)?.[1] !== wanted) {
      throw badInput(
        `a package has ${JSON.stringify(name)} where ${wanted}.tar belongs`,
        "dpkg-deb --info FILE says what dpkg makes of it",
      );
    }
    const member = { left: sizeBytes };
    yield { name: wanted, tar: decompressed(counted(pieces.next(sizeBytes), member)) };
    if (member.left > 0) throw damaged(`something follows the end of its ${name}`);
    await skipPadding(pieces, sizeBytes);
  }
}

async function checkVersion(pieces: Pieces): Promise<void> {
  const { name, sizeBytes } = await nextHeader(pieces);
  if (name !== "debian-binary" || sizeBytes > MAX_VERSION_BYTES) throw damaged("it does not begin with debian-binary");
  const version = (await pieces.exactly(sizeBytes)).toString("latin1");
  if (!version.startsWith("2.")) throw damaged(`it has the format ${JSON.stringify(version.slice(0, 20).trim())}`);
  await skipPadding(pieces, sizeBytes);
}

/** The next member that counts. */
async function nextHeader(pieces: Pieces): Promise<Header> {
  for (;;) {
    const header = parseHeader(await pieces.exactly(HEADER_BYTES));
    if (!header.name.startsWith("_")) return header;
    for await (const _ of pieces.next(header.sizeBytes));
    await skipPadding(pieces, header.sizeBytes);
  }
}

function parseHeader(bytes: Buffer): Header {
  const text = bytes.toString("latin1");
  const name = text.slice(0, 16).trimEnd().replace(/\/$/, "");
  const size = text.slice(48, 58).trimEnd();
  if (!text.endsWith(HEADER_END) || name === "" || !/^[0-9]{1,10}$/.test(size))
    throw damaged("the header of a member is none");
  return { name, sizeBytes: Number(size) };
}

/** Members begin at even places. */
async function skipPadding(pieces: Pieces, sizeBytes: number): Promise<void> {
  // The last byte of a file may be left out.
  if (sizeBytes % 2 === 1 && (await pieces.hasMore())) await pieces.exactly(1);
}

async function* counted(source: AsyncIterable<Uint8Array>, member: { left: number }): AsyncGenerator<Uint8Array> {
  for await (const piece of source) {
    member.left -= piece.length;
    yield piece;
  }
}

function damaged(what: string): Error {
  return badInput(`the Debian package is damaged: ${what}`, "send the whole file again");
}
