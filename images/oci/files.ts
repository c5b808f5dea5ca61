/** The files of an image: of an archive that was unpacked, or of a layout in a directory. */
export interface ImageFiles {
  has(path: string): boolean;
  /** The whole of a small file. Rejects with `InvalidArgument` when it is missing or larger than `maxBytes`. */
  read(path: string, maxBytes: number): Promise<string>;
  /** Throws `InvalidArgument` when the file is missing. */
  stream(path: string): AsyncIterable<Uint8Array>;
  /** Hex, of the file as it stands in the image. Rejects with `InvalidArgument` when it is missing. */
  sha256(path: string): Promise<string>;
}
