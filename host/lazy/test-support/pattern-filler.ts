/** A filler whose files hold a pattern: what a test expects it can compute. It fills when it is told to. */
import { openSync, writeSync } from "node:fs";
import { CHANNEL_FD } from "../channel.ts";
import type { FillerMessage } from "../filler.ts";
import { PieceSet } from "../pieces.ts";
import type { LazyFile, Mechanism, Read } from "../requests.ts";
import { fileId, LazyServer } from "../server.ts";
import { PATTERN_PIECE_BYTES, patternPiece } from "./pattern.ts";

/** What a test tells it first. */
export interface PatternSetup {
  readonly mechanism: Mechanism;
  readonly hand: string;
  readonly files: readonly { readonly name: string; readonly path: string; readonly sizeBytes: number }[];
  /** Reads wait until `go` is called. */
  readonly holds: boolean;
  /** Reads fail. */
  readonly fails: boolean;
  /** A piece that is there from the start, and marked. */
  readonly marked?: number;
}

const { promise: going, resolve: go } = Promise.withResolvers<void>();
const files = new Map<string, LazyFile>();
let asked = 0;

function serve({ mechanism, hand, files: wanted, holds, fails, marked }: PatternSetup): void {
  if (!holds) go();
  const server = new LazyServer({
    mechanism,
    descriptor: CHANNEL_FD,
    hand,
    async fill(file, read) {
      asked += 1;
      say({ event: "asked" });
      await going;
      if (fails) throw new Error("as the test wants it");
      fill(file, read);
      const path = wanted.find(({ name }) => name === file.name)?.path ?? "";
      if (file.present.isComplete) server.complete(path);
    },
    onMark: () => say({ event: "marked" }),
    onFailure: (error) => {
      throw error;
    },
  });
  for (const { name, path, sizeBytes } of wanted) {
    const file = openFile(mechanism, name, path, sizeBytes);
    files.set(name, file);
    if (marked !== undefined) {
      fill(file, { id: file.id, offset: marked * PATTERN_PIECE_BYTES, length: PATTERN_PIECE_BYTES });
      file.marks.add(marked);
    }
    server.add(file, path);
  }
  server.start();
  say({ event: "ready" });
}

function openFile(mechanism: Mechanism, name: string, path: string, sizeBytes: number): LazyFile {
  const fd = openSync(path, "r+");
  return {
    name,
    id: fileId(mechanism, name, fd),
    fd,
    present: new PieceSet(sizeBytes, PATTERN_PIECE_BYTES),
    touched: new PieceSet(sizeBytes, PATTERN_PIECE_BYTES),
    marks: new PieceSet(sizeBytes, PATTERN_PIECE_BYTES),
    counts: new Int32Array(new SharedArrayBuffer(8)),
  };
}

function fill({ name, fd, present }: LazyFile, { offset, length }: Read): void {
  const { first, end } = present.span(offset, length);
  for (let piece = first; piece < end; piece++) {
    writeSync(fd, patternPiece(name, piece), 0, present.bytesOf(piece), piece * PATTERN_PIECE_BYTES);
    present.add(piece);
  }
}

function say(message: FillerMessage): void {
  process.send?.(message);
}

process.on("message", (message: { setup?: PatternSetup; alive?: true; id: number; call?: { call: string } }) => {
  if (message.alive === true) return say({ alive: true });
  if (message.setup !== undefined) return serve(message.setup);
  if (message.call?.call === "go") go();
  const counts = [...files.values()].map((file) => [...file.counts]);
  say({ answer: message.id, result: { asked, counts } });
});
