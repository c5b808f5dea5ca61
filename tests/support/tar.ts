import { type Header, pack } from "tar-stream";

/** An entry of an archive; a file of `body` unless its header says otherwise. */
export type Entry = Partial<Header> & { readonly name: string; readonly body?: string | Buffer };

/** The bytes of a tar with these entries, sound or not. */
export async function tarOf(...entries: readonly Entry[]): Promise<Uint8Array> {
  const tar = pack();
  for (const { body = "", ...header } of entries) tar.entry(header, body);
  tar.finalize();
  return Buffer.concat(await Array.fromAsync(tar as AsyncIterable<Buffer>));
}
