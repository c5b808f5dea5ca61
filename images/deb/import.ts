import { SandboxError } from "#core/errors.ts";
import { badInput } from "#core/tar/entry.ts";
import { TarReader } from "#core/tar/reader.ts";
import { type BuildLayerOptions, type BuiltLayer, buildLayer, type Feed } from "../layers/layer.ts";
import { hostArchitecture } from "../oci/select.ts";
import { type PackageControl, readControl } from "./control.ts";
import { packageMembers } from "./members.ts";
import { type FileOwners, PackageFiles } from "./package-files.ts";
import { Pieces } from "./pieces.ts";

/** What all packages together may replace, themselves included: a package of half a MiB can name a quarter of a million others. */
const MOST_RELATIONS = 100_000;

/** The layer of some packages and what they are, in their order. */
export interface PackageLayer extends BuiltLayer {
  readonly packages: readonly PackageControl[];
}

/**
 * One layer of the files of Debian packages; each source holds any number of them, one after the other. Nothing of a package is run, and
 * nothing is written down for dpkg. Rejects as `importArtifact` does, and with `InvalidArgument` for a package of another processor.
 */
export async function packageLayer(
  options: BuildLayerOptions,
  sources: Iterable<AsyncIterable<Uint8Array>>,
): Promise<PackageLayer> {
  const packages: PackageControl[] = [];
  let relations = 0;
  const layer = await buildLayer(options, async (feed) => {
    const owners: FileOwners = new Map();
    for (const source of sources) {
      const pieces = new Pieces(source);
      try {
        do {
          const control = await onePackage(pieces, feed, owners);
          relations += 1 + control.replaces.size;
          if (relations > MOST_RELATIONS) throw tooMany();
          packages.push(control);
        } while (await pieces.hasMore());
      } finally {
        pieces.end();
      }
    }
  });
  return { ...layer, packages };
}

async function onePackage(pieces: Pieces, { builder, drain }: Feed, owners: FileOwners): Promise<PackageControl> {
  let control: PackageControl | undefined;
  for await (const { tar } of packageMembers(pieces)) {
    if (control === undefined) {
      control = await readControl(tar);
      checkArchitecture(control);
      continue;
    }
    const reader = new TarReader(new PackageFiles(builder, owners, control));
    for await (const piece of tar) {
      reader.push(piece);
      await drain();
    }
    reader.finish();
  }
  if (control === undefined) throw new Error("a package without members");
  return control;
}

function tooMany(): SandboxError {
  return new SandboxError("TooLarge", `the packages name more than ${MOST_RELATIONS} others that they replace`, {
    hint: "import them in parts, as toolkits of their own",
  });
}

function checkArchitecture({ name, architecture }: PackageControl): void {
  if (["all", hostArchitecture()].includes(architecture)) return;
  throw badInput(
    `${name} is for ${architecture}, and this node's processor is ${hostArchitecture()}`,
    "take the package for this processor",
  );
}
