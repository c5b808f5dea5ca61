import { createHash } from "node:crypto";
import { gzipSync } from "node:zlib";
import { hostArchitecture } from "../oci/select.ts";
import { archive, type Member, member } from "./fixtures.ts";

/** One image of an archive; what is left out is as it should be. */
export interface ImageSpec {
  /** Each a plain tar, lowest first. */
  readonly layers: readonly Buffer[];
  readonly config?: Readonly<Record<string, unknown>>;
  readonly architecture?: string;
  readonly diffIds?: readonly string[];
  readonly reference?: string;
  readonly layerType?: string;
}

/** The digest that OCI documents name bytes by. */
export function digestOf(bytes: Buffer): string {
  return `sha256:${createHash("sha256").update(bytes).digest("hex")}`;
}

/** An OCI image layout in a tar, layers compressed with gzip. `change` may tamper with the members before they are packed. */
export function ociArchive(specs: readonly ImageSpec[], change = (members: Member[]): Member[] => members): Buffer {
  const blobs = new Map<string, Buffer>();
  const add = (bytes: Buffer): { readonly digest: string; readonly size: number } => {
    blobs.set(digestOf(bytes), bytes);
    return { digest: digestOf(bytes), size: bytes.length };
  };
  const manifests = specs.map((spec) => {
    const config = add(json(configOf(spec)));
    const layers = spec.layers.map((layer) => ({
      mediaType: spec.layerType ?? "application/vnd.oci.image.layer.v1.tar+gzip",
      ...add(gzipSync(layer)),
    }));
    const mediaType = "application/vnd.oci.image.manifest.v1+json";
    const named = { mediaType: "application/vnd.oci.image.config.v1+json", ...config };
    const manifest = add(json({ schemaVersion: 2, mediaType, config: named, layers }));
    const name = spec.reference;
    return {
      mediaType,
      ...manifest,
      ...(spec.architecture === undefined ? {} : { platform: { os: "linux", architecture: spec.architecture } }),
      ...(name === undefined ? {} : { annotations: { "org.opencontainers.image.ref.name": name } }),
    };
  });
  const members: Member[] = [
    { path: "oci-layout", body: '{"imageLayoutVersion":"1.0.0"}' },
    { path: "index.json", body: json({ schemaVersion: 2, manifests }) },
    ...[...blobs].map(([digest, body]) => ({ path: `blobs/${digest.replace(":", "/")}`, body })),
  ];
  return archive(...change(members).map(member));
}

function configOf({ layers, config, architecture, diffIds }: ImageSpec): Readonly<Record<string, unknown>> {
  return {
    os: "linux",
    architecture: architecture ?? hostArchitecture(),
    config: config ?? {},
    rootfs: { type: "layers", diff_ids: diffIds ?? layers.map(digestOf) },
  };
}

function json(value: unknown): Buffer {
  return Buffer.from(JSON.stringify(value));
}
