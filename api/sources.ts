import { type Static, Type } from "typebox";
import { TREE_KINDS } from "#core/sandbox.ts";
import { ArtifactName, ArtifactPlace, DebianPackage, DebianSuite } from "./artifacts.ts";
import { ErrorBody } from "./errors.ts";
import { closed, Labels, oneOf } from "./values.ts";

/** What a registry or a server of repositories asks for; kept nowhere. */
const Credentials = closed({
  username: Type.String({ minLength: 1, maxLength: 256, pattern: "^[^:\\p{Cc}]+$" }),
  password: Type.String({ maxLength: 64 * 1024, pattern: "^[^\\p{Cc}]*$" }),
});

const RegistrySource = closed({
  type: Type.Literal("registry"),
  image: Type.String({
    maxLength: 512,
    description: "[registry/]repository[:tag][@sha256:…]; Docker Hub unless it names a registry.",
  }),
  credentials: Type.Optional(Credentials),
  insecure: Type.Optional(
    Type.Boolean({ description: "Plain HTTP and certificates that nobody vouches for will do." }),
  ),
});

const GitSource = closed({
  type: Type.Literal("git"),
  url: Type.String({ maxLength: 2048, description: "https://, http:// or git://." }),
  revision: Type.Optional(
    Type.String({
      maxLength: 255,
      description: "Branch, tag or whole id of a commit; the repository's head unless given.",
    }),
  ),
  credentials: Type.Optional(Credentials),
});

const PackageSource = closed({
  type: Type.Literal("apt"),
  packages: Type.Array(DebianPackage, { minItems: 1, maxItems: 1000 }),
  suite: Type.Optional(DebianSuite),
});

/** How the layers of an exported image are compressed; gzip unless given. */
export const ExportQuery = closed({ compression: Type.Optional(oneOf(["gzip", "zstd", "none"])) });

/** Where an artifact goes as an OCI image. */
export const ExportToRequest = closed({
  ...RegistrySource.properties,
  compression: Type.Optional(oneOf(["gzip", "zstd", "none"])),
});
export type ExportToRequest = Static<typeof ExportToRequest>;

/** A line of the reply: any number of `progress`, then exactly one of the others. */
export const ExportEvent = Type.Union([
  closed({ progress: Type.String() }),
  closed({ exported: Type.String({ description: "What the image is called there." }) }),
  ErrorBody,
]);
export type ExportEvent = Static<typeof ExportEvent>;

/** An artifact that the node fetches itself. */
export const ImportFromRequest = closed({
  name: ArtifactName,
  kind: oneOf(TREE_KINDS),
  source: Type.Union([RegistrySource, GitSource, PackageSource]),
  at: Type.Optional(ArtifactPlace),
  labels: Type.Optional(Labels),
});
export type ImportFromRequest = Static<typeof ImportFromRequest>;
