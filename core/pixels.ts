/** What a screen shows: three bytes for each point, red, green and blue, row by row. */
export interface Pixels {
  readonly width: number;
  readonly height: number;
  readonly rgb: Uint8Array;
}

const POINT_BYTES = 3;

/** Whether two pictures differ in more than this share of their points; those of different sizes do. */
export function differMore(a: Pixels, b: Pixels, share: number): boolean {
  if (a.width !== b.width || a.height !== b.height) return true;
  if (Buffer.compare(a.rgb, b.rgb) === 0) return false;
  const most = share * a.width * a.height;
  let changed = 0;
  for (let at = 0; at < a.rgb.length; at += POINT_BYTES) {
    if (a.rgb[at] === b.rgb[at] && a.rgb[at + 1] === b.rgb[at + 1] && a.rgb[at + 2] === b.rgb[at + 2]) continue;
    changed += 1;
    if (changed > most) return true;
  }
  return false;
}
