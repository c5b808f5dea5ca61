import { SandboxError } from "#core/errors.ts";

/** A TCP socket of a sandbox that takes connections. */
export interface Listener {
  readonly port: number;
  /** The address it is bound to, as text: `127.0.0.1`, `0.0.0.0`, `::`, … */
  readonly address: string;
}

/** u16 port, u8 bytes of the address, u8 zero, 16 bytes of address. */
const RECORD_BYTES = 20;

/** What the action `listeners` of an agent wrote, whole. Throws `Internal` for what no agent writes. */
export function decodeListeners(bytes: Uint8Array): Listener[] {
  if (bytes.length % RECORD_BYTES !== 0) throw malformed();
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return Array.from({ length: bytes.length / RECORD_BYTES }, (_, index) => {
    const at = index * RECORD_BYTES;
    const size = view.getUint8(at + 2);
    const port = view.getUint16(at, true);
    if (port === 0 || view.getUint8(at + 3) !== 0) throw malformed();
    return { port, address: addressOf(size, view, at + 4) };
  });
}

function addressOf(size: number, view: DataView, at: number): string {
  if (size === 4) return [0, 1, 2, 3].map((index) => view.getUint8(at + index)).join(".");
  if (size !== 16) throw malformed();
  return shortened(Array.from({ length: 8 }, (_, index) => view.getUint16(at + 2 * index)));
}

/** The form of RFC 5952: the longest run of zeros, of two or more, becomes `::`. */
function shortened(words: readonly number[]): string {
  let best = { from: 0, length: 1 };
  for (let from = 0; from < words.length; from++) {
    let length = 0;
    while (words[from + length] === 0) length++;
    if (length > best.length) best = { from, length };
  }
  const hex = words.map((word) => word.toString(16));
  if (best.length === 1) return hex.join(":");
  return `${hex.slice(0, best.from).join(":")}::${hex.slice(best.from + best.length).join(":")}`;
}

function malformed(): SandboxError {
  return new SandboxError("Internal", "the agent sent a list of listeners that is none");
}
