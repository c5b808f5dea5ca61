import type { OutputStream } from "#core/sandbox.ts";
import type { OutputLog } from "#edge/output/log.ts";

/** The first `limit` bytes of each stream, up to the first gap. */
export function inlineOutput(
  logs: Readonly<Record<OutputStream, OutputLog>>,
  limit: number,
): Readonly<Record<OutputStream, Uint8Array>> {
  return { stdout: firstBytes(logs.stdout, limit), stderr: firstBytes(logs.stderr, limit) };
}

function firstBytes(log: OutputLog, limit: number): Uint8Array {
  const parts: Uint8Array[] = [];
  let offset = 0;
  while (offset < Math.min(limit, log.seen)) {
    const chunk = log.read(offset, Buffer.allocUnsafe(Math.min(limit, log.seen) - offset));
    if (chunk === undefined || chunk.offset !== offset) break;
    parts.push(chunk.bytes);
    offset += chunk.bytes.length;
  }
  const [only] = parts;
  return parts.length === 1 && only !== undefined ? only : Buffer.concat(parts);
}
