import { createReadStream } from "node:fs";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { fetchPackages } from "#host/fetch/apt.ts";
import { interruptible } from "../archive/source.ts";
import { packageLayer } from "../deb/import.ts";
import { checkPackageKind, madeOf } from "../import.ts";
import { DEFAULT_LIMITS } from "../limits.ts";
import { hostArchitecture } from "../oci/select.ts";
import { DiskRoom } from "../room.ts";
import type { PackageSource, SourceContext, SourcedArtifact } from "./source.ts";

/** Imports Debian packages with what they need and a minimal system lacks: their files, one layer. Nothing of them is run. */
export async function importPackages(source: PackageSource, context: SourceContext): Promise<SourcedArtifact> {
  const { store, kind, signal, progress } = context;
  checkPackageKind(kind);
  await using scratch = await store.scratch();
  const dir = join(scratch.dir, "apt");
  await mkdir(dir, { mode: 0o700 });
  const fetched = await fetchPackages({
    ...{ packages: source.packages, suite: source.suite, architecture: hostArchitecture(), dir, signal, progress },
    maxFileBytes: DEFAULT_LIMITS.dataBytes,
    onLine: progress,
    guard: () => new DiskRoom(dir).take(1),
  });
  function* files(): Generator<AsyncIterable<Uint8Array>> {
    for (const { file, name, version } of fetched.packages) {
      progress(`unpacking ${name} ${version}`);
      yield interruptible(createReadStream(file, { highWaterMark: 2 ** 18 }), signal);
    }
  }
  const options = { store, limits: DEFAULT_LIMITS, whiteouts: "none", devices: "refuse" } as const;
  const layer = await packageLayer(options, files());
  const named = fetched.packages.filter(({ name }) => source.packages.includes(name));
  const provenance = ["apt", fetched.suite, ...named.map(({ name, version }) => `${name}=${version}`)].join(" ");
  return { ...madeOf(layer), provenance };
}
