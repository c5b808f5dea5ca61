import { randomBytes } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";

/** Writes random bytes until the file system refuses; returns how many it took. */
export function fill(dir: string, chunkBytes: number): number {
  for (let written = 0; ; written += chunkBytes) {
    try {
      writeFileSync(join(dir, `fill${written}`), randomBytes(chunkBytes), { flush: true });
    } catch (error) {
      // Node has no name for EDQUOT (122).
      if (error instanceof Error && "errno" in error && (error.errno === -122 || error.errno === -28)) return written;
      throw error;
    }
  }
}
