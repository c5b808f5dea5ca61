import { sha256 } from "../digest.ts";
import { damagedObject, type ObjectContent } from "./object-store.ts";

/** The content of an object, held to its promise: throws `Internal` before its last bytes when size or hash are not as said. */
export async function* checkedContent(key: string, content: ObjectContent): AsyncIterable<Uint8Array> {
  const running = sha256();
  let sizeBytes = 0;
  let held: Uint8Array | undefined;
  for await (const piece of content.open()) {
    if (piece.length === 0) continue;
    sizeBytes += piece.length;
    if (sizeBytes > content.sizeBytes) throw damagedObject(key, `there are more than ${content.sizeBytes} bytes of it`);
    running.update(piece);
    // One piece stays behind, so that a store that counts bytes never sees wrong content as whole.
    if (held !== undefined) yield held;
    held = piece;
  }
  if (sizeBytes !== content.sizeBytes) throw damagedObject(key, `${sizeBytes} of its ${content.sizeBytes} bytes came`);
  if (running.hex() !== content.sha256) throw damagedObject(key, "its SHA-256 is another");
  if (held !== undefined) yield held;
}
