import { type DebianOptions, startDebianBuild } from "#host/debian.ts";
import { untilFinished } from "../archive/source.ts";
import { type ImportedArtifact, importArtifact } from "../import.ts";
import type { LayerTree } from "../layers/tree.ts";
import type { LayerStore } from "../store.ts";

/** What the base called `debian` has beside Debian's minimal system. */
const DEFAULT_DEBIAN_PACKAGES: readonly string[] = ["python3"];

/** Where the base goes and what is in it; see `DebianOptions` for the defaults. */
export interface BuildDebianOptions extends Partial<DebianOptions> {
  readonly store: LayerStore;
}

/** A built base and the release that it is. */
export interface BuiltDebian extends ImportedArtifact {
  readonly suite: string;
}

const PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/** What a build leaves behind that names this host or this moment, and nothing in a sandbox needs. */
const LEFT_OUT: readonly RegExp[] = [
  /^etc\/machine-id$/,
  /^var\/lib\/apt\/lists\/./,
  /^var\/cache\/apt\/.*\.bin$/,
  /^var\/cache\/apt\/archives\/./,
  /^var\/cache\/ldconfig\/aux-cache$/,
  /^var\/(cache\/debconf|lib\/dpkg)\/.*-old$/,
  /^var\/log\/(apt\/.|.*\.log$)/,
  /^(tmp|var\/tmp)\/./,
];

/**
 * Builds a Debian (or, on its hosts, Ubuntu) base from the archives of this host's apt, streamed into the store without
 * touching the disk twice. The same packages on the same day give the same layer. Errors: see `startDebianBuild` and
 * `importArtifact`; nothing is left of a build that fails.
 */
export async function buildDebian(options: BuildDebianOptions): Promise<BuiltDebian> {
  const startedAtS = Math.floor(Date.now() / 1000);
  const include = options.include ?? DEFAULT_DEBIAN_PACKAGES;
  await using build = startDebianBuild({ ...options, include });
  const imported = await importArtifact({
    store: options.store,
    source: untilFinished(build.tar, build.finished),
    format: "tar",
    kind: "base",
    isExcluded: (path) => LEFT_OUT.some((pattern) => pattern.test(path)),
    finish: (tree) => settleTimes(tree, startedAtS),
    ...(options.signal === undefined ? {} : { signal: options.signal }),
  });
  return { ...imported, suite: build.suite, config: { env: { PATH }, user: undefined, workdir: undefined } };
}

/** Gives what was made during the build the time of the newest packaged file: the time of the build says nothing. */
function settleTimes(tree: LayerTree, startedAtS: number): void {
  const all = [tree.root];
  for (const { content } of all) {
    if (content.type === "directory") all.push(...content.children.values());
  }
  const packaged = all.map(({ attributes }) => attributes.mtimeS).filter((mtimeS) => mtimeS < startedAtS);
  const newestS = packaged.reduce((a, b) => Math.max(a, b), 0);
  for (const inode of all) {
    if (inode.attributes.mtimeS >= startedAtS) inode.attributes = { ...inode.attributes, mtimeS: newestS, mtimeNs: 0 };
  }
}
