/** Most bytes of a line: a server that never ends one must not fill the memory. */
const MAX_LINE_BYTES = 4 * 1024 * 1024;

/** The lines of a stream of UTF-8, without their ends; empty ones are left out. */
export async function* lines(source: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of source) {
    const parts = (rest + decoder.decode(chunk, { stream: true })).split("\n");
    rest = parts.pop() ?? "";
    if (rest.length > MAX_LINE_BYTES) throw new RangeError(`a line of more than ${MAX_LINE_BYTES} bytes`);
    for (const part of parts) if (part !== "") yield part;
  }
  if (rest !== "") yield rest;
}
