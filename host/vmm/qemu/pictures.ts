import { closeSync, fstatSync, openSync, readSync } from "node:fs";
import { SandboxError } from "#core/errors.ts";
import type { Pixels } from "#core/pixels.ts";

const PNG_SIGNATURE = Buffer.from("89504e470d0a1a0a", "hex");
/** A screen of 4,096 by 4,096 points that are all different. */
const MOST_PICTURE_BYTES = 64 * 1024 * 1024;
/** What a picture of plain points begins with: its size, and the largest value of a colour. */
const PPM_HEADER = /^P6\n(\d{1,5}) (\d{1,5})\n255\n/;
const MOST_HEADER_BYTES = 32;
const POINT_BYTES = 3;

/** A guest may have taken QEMU over, and the files are its to write. `Internal` for one that is no PNG. */
export function readPng(path: string): Buffer {
  const png = readPicture(path);
  if (png.subarray(0, PNG_SIGNATURE.length).equals(PNG_SIGNATURE)) return png;
  throw noPicture();
}

/** The points of a PPM. `Internal` for a file that is none, or has more or fewer than it says. */
export function readPixels(path: string): Pixels {
  const bytes = readPicture(path);
  const [header = "", width, height] = PPM_HEADER.exec(bytes.toString("latin1", 0, MOST_HEADER_BYTES)) ?? [];
  const size = { width: Number(width), height: Number(height) };
  const rgb = bytes.subarray(header.length);
  if (header !== "" && rgb.length === POINT_BYTES * size.width * size.height) return { ...size, rgb };
  throw noPicture();
}

function readPicture(path: string): Buffer {
  const fd = openSync(path, "r");
  try {
    const { size } = fstatSync(fd);
    const picture = Buffer.alloc(Math.min(size, MOST_PICTURE_BYTES));
    if (readSync(fd, picture, 0, picture.length, 0) === size) return picture;
    throw noPicture();
  } finally {
    closeSync(fd);
  }
}

function noPicture(): SandboxError {
  return new SandboxError("Internal", "QEMU gives no picture of the screen");
}
