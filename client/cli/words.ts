/** Bytes 0x80 to 0xff that are no UTF-8 stand in texts as these lone surrogates, which no UTF-8 decodes to. */
const ESCAPE = 0xdc00;

/**
 * The words of a command line, with nothing lost. The system's are bytes, Node's are text in which what is no UTF-8 has been
 * replaced: where `raw` (the words of the whole process, each ended by NUL) has such bytes, they come back escaped.
 */
export function wordsOf(argv: readonly string[], raw: () => Uint8Array): readonly string[] {
  if (!argv.some((word) => word.includes("\ufffd"))) return argv;
  const all = split(raw());
  return all.length < argv.length ? argv : all.slice(all.length - argv.length).map(escaped);
}

/** The bytes of a word with escaped ones in it; any other word as it is. */
export function bytesOrText(word: string): string | Uint8Array {
  if (word.isWellFormed()) return word;
  return Buffer.concat([...word].map((character) => Buffer.from(unescaped(character))));
}

function unescaped(character: string): string | Uint8Array {
  const code = (character.codePointAt(0) ?? 0) - ESCAPE;
  return code >= 0x80 && code <= 0xff ? Uint8Array.of(code) : character;
}

function escaped(bytes: Uint8Array): string {
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  const tried = (from: number, to: number) => {
    try {
      return decoder.decode(bytes.subarray(from, to));
    } catch {
      return undefined;
    }
  };
  const whole = tried(0, bytes.length);
  if (whole !== undefined) return whole;
  let text = "";
  for (let at = 0; at < bytes.length; ) {
    const length = [1, 2, 3, 4].find((count) => at + count <= bytes.length && tried(at, at + count) !== undefined);
    text += length === undefined ? String.fromCharCode(ESCAPE + (bytes[at] ?? 0)) : tried(at, at + length);
    at += length ?? 1;
  }
  return text;
}

function split(bytes: Uint8Array): Uint8Array[] {
  const words: Uint8Array[] = [];
  for (let at = 0; at < bytes.length; ) {
    const end = bytes.indexOf(0, at);
    words.push(bytes.subarray(at, end < 0 ? bytes.length : end));
    at = end < 0 ? bytes.length : end + 1;
  }
  return words;
}
