import { type ByteString, badInput, type EntrySink, shown, type TreeEntry } from "#core/tar/entry.ts";
import { components } from "#core/tar/path.ts";
import type { LayerBuilder } from "../layers/builder.ts";
import type { PackageControl } from "./control.ts";

/** Links to the directories of the same names below /usr in every supported release: what lay in them lies there. */
const MERGED = /^(?:bin|sbin|lib|lib32|lib64|libx32|libo32)$/;

/** Which package has which file of the layer that is being made. */
export type FileOwners = Map<ByteString, PackageControl>;

/**
 * Puts the files of one package into a layer as dpkg would on a system with a merged /usr: `/lib/x` is `/usr/lib/x`. Throws
 * `InvalidArgument` when another package has the file and neither says that it replaces the other.
 */
export class PackageFiles implements EntrySink {
  readonly #builder: LayerBuilder;
  readonly #owners: FileOwners;
  readonly #control: PackageControl;
  #isLeftOut = false;

  constructor(builder: LayerBuilder, owners: FileOwners, control: PackageControl) {
    this.#builder = builder;
    this.#owners = owners;
    this.#control = control;
  }

  entry(entry: TreeEntry): void {
    const parts = mergedParts(entry.path);
    const path = parts.join("/");
    this.#isLeftOut = isMergedLink(entry) || !this.#isOurs(entry, path);
    if (this.#isLeftOut) return;
    const target = entry.type === "link" ? mergedParts(entry.target).join("/") : entry.target;
    this.#builder.entry({ ...entry, path, target });
    if (entry.type !== "directory") this.#owners.set(path, this.#control);
  }

  data(bytes: Uint8Array): void {
    if (!this.#isLeftOut) this.#builder.data(bytes);
  }

  /** False for a file that another package has and keeps. */
  #isOurs(entry: TreeEntry, path: ByteString): boolean {
    const existing = this.#builder.tree.find(components(path));
    if (existing === undefined || (existing.content.type === "directory" && entry.type === "directory")) return true;
    const owner = this.#owners.get(path);
    const isFile = existing.content.type !== "directory" && entry.type !== "directory";
    if (owner === undefined || !isFile) throw this.#overlap(path, owner);
    if (owner === this.#control || this.#control.replaces.has(owner.name)) return true;
    if (owner.replaces.has(this.#control.name)) return false;
    throw this.#overlap(path, owner);
  }

  #overlap(path: ByteString, owner: PackageControl | undefined): Error {
    const other = owner === undefined ? "a directory of another package" : `a file of ${owner.name}`;
    return badInput(
      `${shown(path)} of ${this.#control.name} is ${other}`,
      "import the packages one by one, as toolkits of their own",
    );
  }
}

function mergedParts(path: ByteString): readonly ByteString[] {
  const parts = components(path);
  return MERGED.test(parts[0] ?? "") ? ["usr", ...parts] : parts;
}

/** The base has the link; a second one would hide what it leads to. */
function isMergedLink({ path, type }: TreeEntry): boolean {
  return type === "symlink" && MERGED.test(components(path).join("/"));
}
