import { createHash } from "node:crypto";
import { createReadStream, lstatSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { join, posix } from "node:path";
import { Batch } from "#core/tar/batch.ts";
import { endOfArchive, type TarEntry, tarHeader, tarPadding } from "#core/tar/writer.ts";
import { DsecError } from "#sdk";
import { globToRegExp, ignoreRules, isIgnored } from "./patterns.ts";

/** One file, directory or link below the context. */
export interface ContextEntry {
  /** Below the context, names joined by `/`. */
  readonly path: string;
  readonly type: "file" | "directory" | "symlink";
  readonly mode: number;
  readonly size: number;
  readonly mtimeNs: bigint;
  /** Of a link. */
  readonly target: string;
  /** Of a file that is not in the context. */
  readonly content?: Buffer;
}

/** An entry on its way into a sandbox, under another name. */
export interface PlacedEntry extends ContextEntry {
  readonly name: string;
}

/** Who owns what is copied, and with which permission bits. */
export interface CopyMode {
  readonly uid: number;
  readonly gid: number;
  /** Undefined: as in the context. */
  readonly mode: number | undefined;
}

/** The directory that a build copies from, without what its `.dockerignore` names. Links are never followed. */
export class BuildContext {
  readonly #root: string;
  readonly #entries: readonly ContextEntry[];

  constructor(root: string) {
    this.#root = root;
    const rules = ignoreRules(textOf(join(root, ".dockerignore")));
    this.#entries = [...entriesBelow(root, "")].filter(({ path }) => !isIgnored(path, rules));
  }

  /**
   * What `COPY source` takes: a file or link under its own name, of a directory all that is in it. `source` may have `*` and `?`. Throws
   * `NotFound` when nothing matches, `InvalidArgument` for a path that leads out.
   */
  select(source: string): readonly PlacedEntry[] {
    const path = posix.normalize(source).replace(/^\/+/, "").replace(/\/+$/, "");
    if (path.split("/").includes("..")) {
      throw new DsecError("InvalidArgument", `${source} leads out of the context`, {
        hint: "copy it into the context",
      });
    }
    if (path === "." || path === "") return this.#below("");
    const pattern = globToRegExp(path);
    const matches = this.#entries.filter((entry) => pattern.test(entry.path));
    if (matches.length === 0) {
      throw new DsecError("NotFound", `the context has no ${source}`, { hint: "check the path, and .dockerignore" });
    }
    return matches.flatMap((entry) =>
      entry.type === "directory" ? this.#below(`${entry.path}/`) : [{ ...entry, name: posix.basename(entry.path) }],
    );
  }

  /** A file that a Dockerfile has in itself. */
  written(name: string, text: string): PlacedEntry {
    const content = Buffer.from(text);
    return { path: name, name, type: "file", mode: 0o644, mtimeNs: 0n, target: "", size: content.length, content };
  }

  /** Names what would be copied: paths, permission bits, links and content, and no times. */
  async digest(entries: readonly PlacedEntry[]): Promise<string> {
    const hash = createHash("sha256");
    for (const entry of entries) {
      const { name, type, mode, target } = entry;
      const content = type === "file" ? await digestOf(this.#bytesOf(entry)) : target;
      hash.update(JSON.stringify([name, type, mode, content]));
    }
    return hash.digest("hex");
  }

  /** The entries as a tar archive. */
  async *archive(entries: readonly PlacedEntry[], copy: CopyMode): AsyncGenerator<Uint8Array> {
    const batch = new Batch();
    for (const entry of entries) {
      batch.push(tarHeader(tarEntry(entry, copy)));
      if (entry.type !== "file") continue;
      let left = entry.size;
      for await (const piece of this.#bytesOf(entry)) {
        const bytes = piece.subarray(0, left);
        left -= bytes.length;
        const full = batch.add(bytes);
        if (full !== undefined) yield full;
      }
      if (left > 0) throw new DsecError("FailedPrecondition", `${entry.path} changed while it was read`);
      batch.push(tarPadding(entry.size));
    }
    batch.push(endOfArchive());
    yield batch.take();
  }

  #bytesOf({ path, content }: PlacedEntry): AsyncIterable<Uint8Array> | Iterable<Uint8Array> {
    return content === undefined ? createReadStream(join(this.#root, path)) : [content];
  }

  #below(prefix: string): readonly PlacedEntry[] {
    return this.#entries
      .filter(({ path }) => path.startsWith(prefix))
      .map((entry) => ({ ...entry, name: entry.path.slice(prefix.length) }));
  }
}

async function digestOf(bytes: AsyncIterable<Uint8Array> | Iterable<Uint8Array>): Promise<string> {
  const hash = createHash("sha256");
  for await (const piece of bytes) hash.update(piece);
  return hash.digest("hex");
}

function* entriesBelow(root: string, below: string): Generator<ContextEntry> {
  for (const name of readdirSync(join(root, below)).sort()) {
    const path = below === "" ? name : `${below}/${name}`;
    const stats = lstatSync(join(root, path), { bigint: true });
    const plain = { path, mode: Number(stats.mode & 0o7777n), mtimeNs: stats.mtimeNs };
    if (stats.isFile()) yield { ...plain, type: "file", size: Number(stats.size), target: "" };
    if (stats.isSymbolicLink()) {
      yield { ...plain, type: "symlink", size: 0, target: readlinkSync(join(root, path)) };
    }
    if (!stats.isDirectory()) continue;
    yield { ...plain, type: "directory", size: 0, target: "" };
    yield* entriesBelow(root, path);
  }
}

function tarEntry({ name, type, mode, size, mtimeNs, target }: PlacedEntry, copy: CopyMode): TarEntry {
  return {
    type,
    name: Buffer.from(type === "directory" ? `${name}/` : name),
    mode: type === "symlink" ? mode : (copy.mode ?? mode),
    ...{ uid: copy.uid, gid: copy.gid, size, mtimeNs, device: 0 },
    target: type === "symlink" ? Buffer.from(target) : undefined,
  };
}

function textOf(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return "";
    throw error;
  }
}
