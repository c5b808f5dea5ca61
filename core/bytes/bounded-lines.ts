/** Cuts bytes from somebody who is not trusted into lines of UTF-8. Holds at most one line that is not whole. */
export class BoundedLines {
  readonly #limitBytes: number;
  #rest: Buffer = Buffer.alloc(0);

  constructor(limitBytes: number) {
    this.#limitBytes = limitBytes;
  }

  /** The lines that are whole now, without their ends; `undefined` when one is longer than the limit: nothing may be read after it. */
  push(bytes: Buffer): readonly string[] | undefined {
    const lines: string[] = [];
    let from = 0;
    for (let end = bytes.indexOf(10); end >= 0; end = bytes.indexOf(10, from)) {
      if (this.#rest.length + end - from > this.#limitBytes) return undefined;
      lines.push(Buffer.concat([this.#rest, bytes.subarray(from, end)]).toString());
      this.#rest = Buffer.alloc(0);
      from = end + 1;
    }
    if (this.#rest.length + bytes.length - from > this.#limitBytes) return undefined;
    if (from < bytes.length) this.#rest = Buffer.concat([this.#rest, bytes.subarray(from)]);
    return lines;
  }
}
