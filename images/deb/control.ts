import { badInput, type EntrySink, type TreeEntry } from "#core/tar/entry.ts";
import { TarReader } from "#core/tar/reader.ts";

/** What a package says of itself. */
export interface PackageControl {
  readonly name: string;
  readonly version: string;
  /** `amd64`, `all`, … */
  readonly architecture: string;
  /** Packages whose files it may take over. */
  readonly replaces: ReadonlySet<string>;
}

/** Descriptions are long, and scripts beside them longer; what is more than this says nothing about a package. */
const MAX_CONTROL_BYTES = 2 ** 20;
const MAX_ARCHIVE_BYTES = 2 ** 26;
const NAME = /^[a-z0-9][a-z0-9+.-]{1,127}$/;
const VERSION = /^[A-Za-z0-9.+~:-]{1,200}$/;

/** Reads the control archive of a package. Its scripts are looked at by nobody. Throws `InvalidArgument`. */
export async function readControl(tar: AsyncIterable<Uint8Array>): Promise<PackageControl> {
  const file = new ControlFile();
  const reader = new TarReader(file);
  let bytes = 0;
  for await (const piece of tar) {
    bytes += piece.length;
    if (bytes > MAX_ARCHIVE_BYTES) throw badInput("the control archive of a package is larger than any has to be");
    reader.push(piece);
  }
  reader.finish();
  return parseControl(file.text());
}

/** Takes `control` out of the archive and nothing else. */
class ControlFile implements EntrySink {
  readonly #parts: Uint8Array[] = [];
  #isControl = false;

  entry(entry: TreeEntry): void {
    this.#isControl = entry.type === "file" && /^(\.\/)?control$/.test(entry.path);
    if (!this.#isControl) return;
    if (entry.size > MAX_CONTROL_BYTES) throw badInput("a package says more of itself than any has to");
    this.#parts.length = 0;
  }

  data(bytes: Uint8Array): void {
    // The reader uses its buffer again.
    if (this.#isControl) this.#parts.push(Uint8Array.from(bytes));
  }

  text(): string {
    return Buffer.concat(this.#parts).toString("utf8");
  }
}

function parseControl(text: string): PackageControl {
  const field = (name: string): string =>
    new RegExp(`^${name}:[ \\t]*(.*(?:\\n[ \\t].*)*)`, "im").exec(text)?.[1]?.trim() ?? "";
  const [name, version, architecture] = [field("Package"), field("Version"), field("Architecture")];
  if (!NAME.test(name) || !VERSION.test(version) || !NAME.test(architecture)) {
    throw badInput(
      "a package does not say its name, version and architecture",
      "dpkg-deb --info FILE says what dpkg makes of it",
    );
  }
  const replaces = field("Replaces")
    .split(",")
    .map((each) => /^\s*([a-z0-9+.-]+)/.exec(each)?.[1] ?? "");
  return { name, version, architecture, replaces: new Set(replaces) };
}
