import type {
  ArtifactView,
  BuildRequest,
  CollectReply,
  DeriveRequest,
  ExportToRequest,
  ImportFromRequest,
  LayerView,
  TagRequest,
} from "#api/index.ts";
import type { Caller, CallOptions } from "./caller.ts";
import { DsecError, errorFromReply } from "./errors.ts";
import { lines } from "./lines.ts";
import { segment } from "./paths.ts";

/** What a tree of files can be. */
export type TreeKind = Exclude<ArtifactView["kind"], "vm-image">;

/** A disk or CD of a full virtual machine. */
export interface VmImageOptions extends CallOptions {
  readonly name: string;
  /** What starts it; bios unless given. */
  readonly firmware?: "bios" | "uefi";
  /** What its system knows; virtio unless given. */
  readonly devices?: "virtio" | "emulated";
  /** Its system runs the agent as a service. */
  readonly agent?: boolean;
  readonly labels?: Readonly<Record<string, string>>;
}

/** What an import says about its bytes. */
export interface ImportOptions extends CallOptions {
  readonly name: string;
  readonly kind: TreeKind;
  /** `tar`: a file tree, plain, gzip or zstd. `oci`: an image layout in a tar. `deb`: Debian packages. */
  readonly format?: "tar" | "oci" | "deb";
  /** Directory of the sandbox at which a workspace or toolkit begins; `/` unless given. */
  readonly at?: string;
  readonly labels?: Readonly<Record<string, string>>;
}

/** Which artifacts to list. */
export interface ListArtifactsOptions extends CallOptions {
  /** Only those that carry all of these. */
  readonly labels?: Readonly<Record<string, string>>;
}

/** How an artifact goes out. */
export interface ExportOptions extends CallOptions {
  /** Of layers; gzip unless given. */
  readonly compression?: "gzip" | "zstd" | "none";
}

/** What a build may report on its way. */
export interface BuildOptions extends CallOptions {
  readonly onProgress?: (line: string) => void;
}

/** Gigabytes may have to move. */
const TRANSFER_MS = 3_600_000;

/** The catalogue of environment parts. */
export class Artifacts {
  readonly #caller: Caller;

  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /** Turns an archive into an artifact; nothing is left of one that breaks off. */
  import(bytes: Uint8Array | AsyncIterable<Uint8Array>, options: ImportOptions): Promise<ArtifactView> {
    const { name, kind, format = "tar", at, labels = {}, signal, timeoutMs } = options;
    const label = Object.entries(labels).map(([key, value]) => `${key}=${value}`);
    const query = { name, kind, format, label, ...(at === undefined ? {} : { at }) };
    return this.#caller.json({ method: "POST", path: "/v1/artifacts/import", query, bytes, signal, timeoutMs });
  }

  /** Turns an image of a disk or a CD, as qcow2, VMDK, ISO or plain bytes, into a `vm-image`. */
  importVmImage(bytes: Uint8Array | AsyncIterable<Uint8Array>, options: VmImageOptions): Promise<ArtifactView> {
    const { name, firmware, devices, agent, labels = {}, signal, timeoutMs } = options;
    const label = Object.entries(labels).map(([key, value]) => `${key}=${value}`);
    const query = { name, kind: "vm-image", format: "vm", firmware, devices, agent, label };
    return this.#caller.json({ method: "POST", path: "/v1/artifacts/import", query, bytes, signal, timeoutMs });
  }

  /** Lets the server fetch an artifact from a registry, a git repository or Debian's archive; nothing is left of one that breaks off. */
  importFrom(request: ImportFromRequest, options: BuildOptions = {}): Promise<ArtifactView> {
    return this.#make("/v1/artifacts/import-from", request, options);
  }

  /** Builds a Debian base on the server. */
  build(request: BuildRequest, options: BuildOptions = {}): Promise<ArtifactView> {
    return this.#make("/v1/artifacts/build", request, options);
  }

  /**
   * The artifact as an OCI image archive: layers as tar, whiteouts and configuration as others know them. The same artifact gives the
   * same bytes. A stream that breaks off throws.
   */
  async *export(name: string, options: ExportOptions = {}): AsyncGenerator<Uint8Array> {
    const { compression, signal, timeoutMs } = options;
    const path = `/v1/artifacts/${segment(name)}/export`;
    const reply = await this.#caller.open({ method: "GET", path, query: { compression }, signal, timeoutMs });
    yield* reply.body;
  }

  /** Lets the server put the artifact into a registry as an OCI image; resolves with its address there. */
  async exportTo(name: string, target: ExportToRequest, options: BuildOptions = {}): Promise<string> {
    const path = `/v1/artifacts/${segment(name)}/export-to`;
    return (await this.#work<{ readonly exported: string }>(path, target, options)).exported;
  }

  async #make(path: string, json: object, options: BuildOptions): Promise<ArtifactView> {
    return (await this.#work<{ readonly artifact: ArtifactView }>(path, json, options)).artifact;
  }

  /** Follows lines of progress to the last line, which is the outcome. */
  async #work<Outcome extends object>(path: string, json: object, options: BuildOptions): Promise<Outcome> {
    const { signal, timeoutMs } = options;
    const reply = await this.#caller.open({ method: "POST", path, json, signal, timeoutMs });
    for await (const line of lines(reply.body)) {
      const event = JSON.parse(line) as { readonly progress: string } | { readonly error: unknown } | Outcome;
      if ("progress" in event) options.onProgress?.(event.progress);
      else if ("error" in event) throw errorFromReply(500, line);
      else return event;
    }
    throw new DsecError("Internal", "the server ended without a result", { hint: "see the node's log" });
  }

  /** Every artifact the project may use, or those of them that carry all the labels. */
  async list(options: ListArtifactsOptions = {}): Promise<readonly ArtifactView[]> {
    const { labels = {}, signal, timeoutMs } = options;
    const label = Object.entries(labels).map(([name, value]) => `${name}=${value}`);
    const query = label.length === 0 ? {} : { label };
    const call = { signal, timeoutMs, method: "GET", path: "/v1/artifacts", query } as const;
    return (await this.#caller.json<{ readonly artifacts: readonly ArtifactView[] }>(call)).artifacts;
  }

  /** One artifact by `name`, `name:tag` or `name@sha256:…`. */
  info(name: string, options: CallOptions = {}): Promise<ArtifactView> {
    return this.#caller.json({ ...options, method: "GET", path: `/v1/artifacts/${segment(name)}` });
  }

  /** Where the data of its layers is, lowest first: here, in a shared directory, or fetched as it is read. */
  async layers(name: string, options: CallOptions = {}): Promise<readonly LayerView[]> {
    const call = { ...options, method: "GET", path: `/v1/artifacts/${segment(name)}/layers` } as const;
    return (await this.#caller.json<{ readonly layers: readonly LayerView[] }>(call)).layers;
  }

  /**
   * Removes what nothing needs from the node now, which happens every ten minutes too; yields the digests of the layers that went. `dryRun`: only tells which would go, and how many
   * bytes that would free.
   */
  collect({ dryRun = false, ...options }: CallOptions & { readonly dryRun?: boolean } = {}): Promise<CollectReply> {
    const path = `/v1/artifacts/collect${dryRun ? "?dryRun=true" : ""}`;
    return this.#caller.json({ ...options, method: "POST", path });
  }

  /** Makes another tag mean it; with `shared`, one that every project sees, which only an admin may. */
  tag(name: string, request: TagRequest, options: CallOptions = {}): Promise<ArtifactView> {
    const path = `/v1/artifacts/${segment(name)}/tags`;
    return this.#caller.json({ ...options, method: "POST", path, json: request });
  }

  /** Makes an artifact of another kind of its layers: with `over`, of those that it has above that artifact's. */
  derive(name: string, request: DeriveRequest, options: CallOptions = {}): Promise<ArtifactView> {
    const path = `/v1/artifacts/${segment(name)}/derive`;
    return this.#caller.json({ ...options, method: "POST", path, json: request });
  }

  /** Puts it into the store that nodes share, which happens by itself too, and waits for it. */
  push(name: string, options: CallOptions = {}): Promise<ArtifactView> {
    const path = `/v1/artifacts/${segment(name)}/push`;
    return this.#caller.json({ timeoutMs: TRANSFER_MS, ...options, method: "POST", path });
  }

  /** Takes over what the name means in the store that nodes share, and brings its layers to the node. */
  pull(name: string, options: CallOptions = {}): Promise<ArtifactView> {
    const path = `/v1/artifacts/${segment(name)}/pull`;
    return this.#caller.json({ timeoutMs: TRANSFER_MS, ...options, method: "POST", path });
  }

  /** Takes it out of the catalogue; sandboxes that use it go on. */
  async remove(name: string, options: CallOptions = {}): Promise<void> {
    await this.#caller.json({ ...options, method: "DELETE", path: `/v1/artifacts/${segment(name)}` });
  }
}
