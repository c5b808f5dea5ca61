import { SandboxError } from "#core/errors.ts";
import { type Attributes, type ByteString, badInput, shown, type TreeEntry } from "#core/tar/entry.ts";
import { components } from "#core/tar/path.ts";
import { type Content, Inode } from "../erofs/inode.ts";
import { type ImportLimits, MAX_ID } from "../limits.ts";
import { isOpaque, isWhiteout, markOpaque, OPAQUE_XATTR, whiteout } from "./whiteouts.ts";
import { keptXattrs } from "./xattr-policy.ts";

type Directory = Map<ByteString, Inode>;

/** What directories that an archive uses without naming them are. */
const PLAIN_DIRECTORY: Attributes = { mode: 0o755, uid: 0, gid: 0, mtimeS: 0, mtimeNs: 0, xattrs: undefined };

/**
 * The tree of one layer while entries arrive. The last entry for a path wins; a directory named again keeps its children.
 * Nothing is ever placed through a symbolic link, and every path ends beneath the root.
 */
export class LayerTree {
  readonly root: Inode;
  readonly #limits: ImportLimits;
  readonly #lower: LayerTree | undefined;
  #entries = 0;
  #nameBytes = 0;
  #lastPath: ByteString | undefined;
  #lastDirectory: Directory = new Map();

  /** `lower`: the layer below in the same image. Directories that only it names lend their attributes to unnamed parents. */
  constructor(limits: ImportLimits, lower?: LayerTree) {
    this.#limits = limits;
    this.#lower = lower;
    const attributes = withoutOpaque(lower?.root.attributes ?? { ...PLAIN_DIRECTORY });
    this.root = new Inode(attributes, { type: "directory", children: new Map() });
  }

  get entries(): number {
    return this.#entries;
  }

  /** Places an entry. A file starts with no chunks: the caller adds them to the inode as the data arrives. */
  place(entry: TreeEntry): Inode {
    this.#count(entry);
    const parts = components(entry.path);
    const name = parts.pop();
    if (name === undefined) return this.#placeRoot(entry);
    return this.#placeIn(this.#directoryOf(parts, entry.path), name, entry);
  }

  /** Places an entry by its name in a directory of this tree, at whatever depth: no path has to be that long. */
  placeIn(directory: Inode, name: ByteString, entry: TreeEntry): Inode {
    this.#count({ ...entry, path: name });
    return this.#placeIn(childrenOf(directory), name, entry);
  }

  /** Gives a file of this tree a further name. */
  link(directory: Inode, name: ByteString, inode: Inode): void {
    this.#count({ path: name, target: "" });
    childrenOf(directory).set(name, inode);
  }

  #placeIn(directory: Directory, name: ByteString, entry: TreeEntry): Inode {
    const existing = directory.get(name);
    if (entry.type === "directory" && existing?.content.type === "directory") {
      const wasOpaque = isOpaque(existing);
      existing.attributes = attributesOf(entry);
      if (wasOpaque) markOpaque(existing);
      return existing;
    }
    const inode = entry.type === "link" ? this.#linked(entry) : new Inode(attributesOf(entry), contentOf(entry));
    if (existing !== undefined && isWhiteout(existing) && inode.content.type === "directory") markOpaque(inode);
    if (existing?.content.type === "directory") this.#lastPath = undefined;
    directory.set(name, inode);
    return inode;
  }

  /** Hides `path` of the layers below. What this layer itself has there stays; a directory becomes opaque. */
  whiteout(path: ByteString): void {
    this.#count({ path, target: "" });
    const parts = components(path);
    const name = parts.pop();
    if (name === undefined) throw badInput("a whiteout names the root of the tree");
    if (this.#isHiddenBelow(parts)) return;
    const directory = this.#directoryOf(parts, path);
    const existing = directory.get(name);
    if (existing?.content.type === "directory") markOpaque(existing);
    if (existing !== undefined) return;
    directory.set(name, whiteout());
  }

  /** Hides everything that the layers below have in the directory `path`. */
  opaque(path: ByteString): void {
    this.#count({ path, target: "" });
    const parts = components(path);
    if (this.#isHiddenBelow(parts)) return;
    this.#directoryOf(parts, path);
    const inode = this.find(parts);
    if (inode !== undefined) markOpaque(inode);
  }

  /** The inode at a path of this layer, without following links. */
  find(parts: readonly ByteString[]): Inode | undefined {
    let inode: Inode | undefined = this.root;
    for (const part of parts) {
      inode = inode?.content.type === "directory" ? inode.content.children.get(part) : undefined;
    }
    return inode;
  }

  /** True when this layer has something else than a directory on the way: it hides all that lower layers have there. */
  #isHiddenBelow(parts: readonly ByteString[]): boolean {
    let inode: Inode | undefined = this.root;
    for (const part of parts) {
      if (inode?.content.type !== "directory") break;
      inode = inode.content.children.get(part);
    }
    return inode !== undefined && inode.content.type !== "directory";
  }

  #placeRoot(entry: TreeEntry): Inode {
    if (entry.type !== "directory") throw badInput("the root of the tree is not a directory in the archive");
    this.root.attributes = attributesOf(entry);
    return this.root;
  }

  #linked(entry: TreeEntry): Inode {
    const target = this.find(components(entry.target));
    if (target === undefined || target.content.type === "directory") {
      throw badInput(
        `${shown(entry.path)} is a hard link to ${shown(entry.target)}, which is no file before it in the archive`,
        "archive both names together",
      );
    }
    return target;
  }

  #directoryOf(parts: readonly ByteString[], path: ByteString): Directory {
    const key = parts.join("/");
    if (key === this.#lastPath) return this.#lastDirectory;
    let inode = this.root;
    for (const [depth, part] of parts.entries()) {
      if (inode.content.type !== "directory") throw beneathNoDirectory(path, parts.slice(0, depth));
      inode =
        inode.content.children.get(part) ?? this.#implicit(inode.content.children, parts.slice(0, depth + 1), path);
    }
    if (isWhiteout(inode)) inode = this.#overWhiteout(parts);
    if (inode.content.type !== "directory") throw beneathNoDirectory(path, parts);
    this.#lastPath = key;
    this.#lastDirectory = inode.content.children;
    return inode.content.children;
  }

  /** A directory nobody named: as the layer below has it, else root's with mode 0755. */
  #implicit(parent: Directory, parts: readonly ByteString[], path: ByteString): Inode {
    const below = this.#below(parts);
    if (below?.content.type === "symlink") throw beneathNoDirectory(path, parts);
    const attributes = below?.content.type === "directory" ? below.attributes : { ...PLAIN_DIRECTORY };
    const inode = new Inode(withoutOpaque(attributes), { type: "directory", children: new Map() });
    this.#count({ path: parts.at(-1) ?? "", target: "" });
    parent.set(parts.at(-1) ?? "", inode);
    return inode;
  }

  /** Replaces a whiteout by the directory that an entry beneath it asks for: the lower content stays hidden. */
  #overWhiteout(parts: readonly ByteString[]): Inode {
    const parent = this.find(parts.slice(0, -1));
    if (parent?.content.type !== "directory") throw new Error("a whiteout has no parent");
    const inode = new Inode({ ...PLAIN_DIRECTORY }, { type: "directory", children: new Map() });
    markOpaque(inode);
    parent.content.children.set(parts.at(-1) ?? "", inode);
    return inode;
  }

  /** What the layers below show at a path; links are not followed. */
  #below(parts: readonly ByteString[]): Inode | undefined {
    for (let layer = this.#lower; layer !== undefined; layer = layer.#lower) {
      let inode: Inode = layer.root;
      let isHidden = false;
      let found = true;
      for (const part of parts) {
        const child: Inode | undefined =
          inode.content.type === "directory" ? inode.content.children.get(part) : undefined;
        isHidden ||= isOpaque(inode);
        if (child === undefined) {
          found = false;
          isHidden ||= inode.content.type !== "directory";
          break;
        }
        inode = child;
      }
      if (found) return isWhiteout(inode) ? undefined : inode;
      if (isHidden) return undefined;
    }
    return undefined;
  }

  #count(entry: Pick<TreeEntry, "path" | "target"> & { readonly xattrs?: Attributes["xattrs"] }): void {
    this.#entries++;
    this.#nameBytes += entry.path.length + entry.target.length;
    for (const [name, value] of entry.xattrs ?? []) this.#nameBytes += name.length + value.length;
    if (this.#entries > this.#limits.entries) {
      throw new SandboxError("TooLarge", `the tree has more than ${this.#limits.entries} entries`);
    }
    if (this.#nameBytes > this.#limits.nameBytes) {
      throw new SandboxError("TooLarge", `names and attributes of the tree exceed ${this.#limits.nameBytes} bytes`);
    }
  }
}

function childrenOf({ content }: Inode): Directory {
  if (content.type === "directory") return content.children;
  throw new Error("an entry was given a parent that is no directory");
}

function contentOf(entry: TreeEntry): Content {
  switch (entry.type) {
    case "file":
      return { type: "file", size: entry.size, chunks: [] };
    case "directory":
      return { type: "directory", children: new Map() };
    case "symlink":
      return { type: "symlink", target: linkTarget(entry) };
    case "character-device":
    case "block-device":
      return { type: entry.type, major: entry.major, minor: entry.minor };
    case "fifo":
    case "socket":
      return { type: entry.type };
    default:
      throw new Error("a hard link has no content of its own");
  }
}

function linkTarget(entry: TreeEntry): ByteString {
  const { target } = entry;
  if (target === "" || target.length >= 4096 || target.includes("\0")) {
    throw badInput(`${shown(entry.path)} is a symbolic link with an impossible target`);
  }
  return target;
}

function attributesOf(entry: TreeEntry): Attributes {
  const { mode, uid, gid, mtimeS, mtimeNs } = entry;
  if (!isId(uid) || !isId(gid)) {
    throw badInput(
      `${shown(entry.path)} belongs to ${uid}:${gid}, and a sandbox has the ids 0 to ${MAX_ID}`,
      "archive it with other owners, for example tar --owner=0 --group=0 --numeric-owner",
    );
  }
  return { mode: mode & 0o7777, uid, gid, mtimeS, mtimeNs, xattrs: keptXattrs(entry.path, entry.xattrs) };
}

function isId(id: number): boolean {
  return Number.isInteger(id) && id >= 0 && id <= MAX_ID;
}

function withoutOpaque(attributes: Attributes): Attributes {
  if (attributes.xattrs?.has(OPAQUE_XATTR) !== true) return attributes;
  return { ...attributes, xattrs: new Map([...attributes.xattrs].filter(([name]) => name !== OPAQUE_XATTR)) };
}

function beneathNoDirectory(path: ByteString, parent: readonly ByteString[]): SandboxError {
  return badInput(
    `the entry ${shown(path)} lies beneath ${shown(parent.join("/"))}, which is not a directory`,
    "archive the real path: nothing is ever placed through a symbolic link",
  );
}
