import type { ArtifactKind } from "#core/sandbox.ts";
import type { Gateway } from "#host/fetch/gateway.ts";
import type { Credentials, RegistrySettings } from "#host/fetch/skopeo.ts";
import type { ImportedArtifact } from "../import.ts";
import type { LayerStore } from "../store.ts";

/** An image in a registry. */
export interface RegistrySource {
  readonly type: "registry";
  /** `[registry/]repository[:tag][@sha256:…]`. */
  readonly image: string;
  readonly credentials?: Credentials | undefined;
  /** Plain HTTP, and certificates that nobody vouches for, will do. */
  readonly insecure?: boolean | undefined;
}

/** The files of one revision of a git repository. */
export interface GitSource {
  readonly type: "git";
  /** `https://`, `http://` or `git://`. */
  readonly url: string;
  /** A branch, a tag, or a commit that the server gives by its id; undefined: what the repository has as its head. */
  readonly revision?: string | undefined;
  readonly credentials?: Credentials | undefined;
}

/** Packages of Debian, or of what else this host is, with what they need. */
export interface PackageSource {
  readonly type: "apt";
  readonly packages: readonly string[];
  /** Undefined: the release of this host. */
  readonly suite?: string | undefined;
}

/** Where an artifact may come from that the node fetches itself. */
export type ImportSource = RegistrySource | GitSource | PackageSource;

/** What importers work with. */
export interface SourceContext {
  readonly store: LayerStore;
  readonly kind: ArtifactKind;
  readonly registries: RegistrySettings;
  /** What keeps whoever asked from addresses behind this node; undefined for who may reach them. */
  readonly gateway?: Gateway | undefined;
  readonly signal: AbortSignal;
  /** Hears each step, as people read it. */
  readonly progress: (line: string) => void;
}

/** What an import made and where it came from, for people. */
export interface SourcedArtifact extends Omit<ImportedArtifact, "receivedBytes"> {
  readonly provenance: string;
}

/** Brings one kind of source into the store. Nothing but whole layers is left when it rejects. */
export type Importer<Source> = (source: Source, context: SourceContext) => Promise<SourcedArtifact>;
