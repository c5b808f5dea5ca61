import assert from "node:assert/strict";
import { inflateSync } from "node:zlib";
import type { Pixels } from "#core/pixels.ts";

const SIGNATURE_BYTES = 8;
const POINT_BYTES = 3;

/** The points of a PNG as QEMU makes them: eight bits a colour, no transparency, not interlaced. */
export function decodePng(png: Uint8Array): Pixels {
  const bytes = Buffer.from(png);
  const [width, height] = [bytes.readUInt32BE(16), bytes.readUInt32BE(20)];
  assert.deepEqual([...bytes.subarray(24, 29)], [8, 2, 0, 0, 0], "another kind of PNG");
  const data: Buffer[] = [];
  for (let at = SIGNATURE_BYTES; at < bytes.length; ) {
    const length = bytes.readUInt32BE(at);
    if (bytes.toString("latin1", at + 4, at + 8) === "IDAT") data.push(bytes.subarray(at + 8, at + 8 + length));
    at += 12 + length;
  }
  return { width, height, rgb: unfiltered(inflateSync(Buffer.concat(data)), width * POINT_BYTES, height) };
}

/** Each row says how it differs from the one above and from what is left of it. */
function unfiltered(rows: Buffer, rowBytes: number, height: number): Buffer {
  const out = Buffer.alloc(rowBytes * height);
  for (let row = 0; row < height; row += 1) {
    const filter = rows[row * (rowBytes + 1)];
    for (let at = 0; at < rowBytes; at += 1) {
      const left = at < POINT_BYTES ? 0 : (out[row * rowBytes + at - POINT_BYTES] ?? 0);
      const above = row === 0 ? 0 : (out[(row - 1) * rowBytes + at] ?? 0);
      const corner = row === 0 || at < POINT_BYTES ? 0 : (out[(row - 1) * rowBytes + at - POINT_BYTES] ?? 0);
      const guess = [0, left, above, (left + above) >> 1, paeth(left, above, corner)][filter ?? 0] ?? 0;
      out[row * rowBytes + at] = (rows[row * (rowBytes + 1) + 1 + at] ?? 0) + guess;
    }
  }
  return out;
}

function paeth(left: number, above: number, corner: number): number {
  const guess = left + above - corner;
  const [a, b, c] = [Math.abs(guess - left), Math.abs(guess - above), Math.abs(guess - corner)];
  return a <= b && a <= c ? left : b <= c ? above : corner;
}

/** How many points of a part of the screen have a colour: `0xrrggbb`. */
export function pointsOf(
  { width, rgb }: Pixels,
  colour: number,
  part: { readonly x: number; readonly y: number; readonly width: number; readonly height: number },
): number {
  let found = 0;
  for (let y = part.y; y < part.y + part.height; y += 1) {
    for (let x = part.x; x < part.x + part.width; x += 1) {
      const at = POINT_BYTES * (y * width + x);
      if (((rgb[at] ?? 0) << 16) + ((rgb[at + 1] ?? 0) << 8) + (rgb[at + 2] ?? 0) === colour) found += 1;
    }
  }
  return found;
}
