import { type Static, Type } from "typebox";
import { ARTIFACT_KINDS, DEVICE_PROFILES, FIRMWARES, TREE_KINDS } from "#core/sandbox.ts";
import { ComputerShapeView } from "./computers.ts";
import { ErrorBody } from "./errors.ts";
import { closed, described, Environment, LabelFilter, Labels, oneOf, PathText, UserName } from "./values.ts";

/** `name` or `name:tag`; the tag is `latest` unless said otherwise. */
export const ArtifactName = Type.String({
  maxLength: 255,
  pattern: "^[a-z0-9][a-z0-9._/-]{0,126}(:[A-Za-z0-9_][A-Za-z0-9._-]{0,126})?$",
});

/** Where an artifact begins in a sandbox. */
export const ArtifactPlace = Type.String({
  maxLength: 4095,
  pattern: "^/",
  description: "Directory of the sandbox at which a workspace or toolkit begins; / unless given.",
});

const LabelList = Type.Array(Type.String({ pattern: "^[A-Za-z0-9][A-Za-z0-9._/-]{0,127}=[^]{0,1024}$" }), {
  maxItems: 64,
  description: "name=value; repeatable.",
});

/**
 * What the body of an import is. `tar`: a file tree, plain or compressed with gzip, zstd, xz or bzip2. `oci`: an image layout in a tar.
 * `deb`: Debian packages, one after the other. `vm`: a disk or CD of a full virtual machine, as qcow2, VMDK, ISO or plain bytes; its kind is `vm-image`.
 */
export const ImportQuery = closed({
  name: ArtifactName,
  kind: oneOf(ARTIFACT_KINDS),
  format: Type.Optional(oneOf(["tar", "oci", "deb", "vm"])),
  firmware: Type.Optional(described(oneOf(FIRMWARES), "Of a vm-image: what starts it, bios unless given.")),
  devices: Type.Optional(
    described(oneOf(DEVICE_PROFILES), "Of a vm-image: what its system knows, virtio unless given."),
  ),
  agent: Type.Optional(described(Type.Boolean(), "Of a vm-image: its system runs the agent as a service.")),
  at: Type.Optional(ArtifactPlace),
  label: Type.Optional(LabelList),
});

/** The name of a package. */
export const DebianPackage = Type.String({ pattern: "^[a-z0-9][a-z0-9+.-]{0,127}$" });

/** A release, such as bookworm. */
export const DebianSuite = Type.String({
  pattern: "^[a-z][a-z0-9-]{0,31}$",
  description: "The server's default unless given.",
});

/** A Debian tree to build: a suite and packages on top of its minimal base. */
export const BuildRequest = closed({
  name: ArtifactName,
  kind: Type.Optional(
    described(oneOf(ARTIFACT_KINDS), "base unless given; a vm-image is a whole system with the agent, for full VMs."),
  ),
  suite: Type.Optional(DebianSuite),
  include: Type.Optional(Type.Array(DebianPackage, { maxItems: 1000 })),
  desktop: Type.Optional(
    described(Type.Boolean(), "Of a vm-image: its screen is a desktop, with a terminal and a browser."),
  ),
  labels: Type.Optional(Labels),
});
export type BuildRequest = Static<typeof BuildRequest>;

const ImageWords = Type.Array(Type.String(), { maxItems: 4096 });

/** What an image says to those who run images; sandboxes do not act on it. */
export const ImageNotes = closed({
  labels: Type.Optional(Type.Record(Type.String(), Type.String(), { maxProperties: 4096 })),
  command: Type.Optional(ImageWords),
  entrypoint: Type.Optional(ImageWords),
});

/** How what is made of an artifact runs. */
export const ConfigRequest = closed({
  env: Type.Optional(Environment),
  user: Type.Optional(UserName),
  workdir: Type.Optional(PathText),
  image: Type.Optional(ImageNotes),
});

/** An environment part in the catalogue. */
export const ArtifactView = closed({
  name: Type.String(),
  tag: Type.Optional(Type.String({ description: "Absent for one that was asked for by its digest." })),
  kind: oneOf(ARTIFACT_KINDS),
  digest: Type.String(),
  layers: Type.Array(Type.String()),
  config: closed({
    env: Environment,
    user: Type.Optional(Type.String()),
    workdir: Type.Optional(Type.String()),
    image: Type.Optional(ImageNotes),
    computer: Type.Optional(ComputerShapeView),
  }),
  sizeBytes: Type.Number(),
  createdAtMs: Type.Number(),
  taggedAtMs: Type.Number(),
  provenance: Type.String(),
  labels: Labels,
  parents: Type.Array(Type.String(), { description: "Digests of the artifacts that it was made of." }),
  project: Type.String({ description: "Whose it is; what is in `shared` everybody may use." }),
  published: Type.Boolean({ description: "Whether the store that nodes share has it." }),
});
export type ArtifactView = Static<typeof ArtifactView>;

/** Another tag for an artifact. */
export const TagRequest = closed({
  target: ArtifactName,
  shared: Type.Optional(Type.Boolean({ description: "In the project that everybody sees; for admins." })),
});
export type TagRequest = Static<typeof TagRequest>;

/** An artifact of another kind, of the layers of this one. */
export const DeriveRequest = closed({
  target: ArtifactName,
  kind: oneOf(TREE_KINDS),
  over: Type.Optional(
    Type.String({ maxLength: 512, description: "An artifact that this one was made on: its layers are left out." }),
  ),
  config: Type.Optional(ConfigRequest),
  labels: Type.Optional(Labels),
});
export type DeriveRequest = Static<typeof DeriveRequest>;

/** Whether to tell what would go, and to remove nothing. */
export const CollectQuery = closed({
  dryRun: Type.Optional(Type.Boolean({ description: "Only tell what would go." })),
});

/** Digests of the layers that nothing needs, and that are gone now, or would go. */
export const CollectReply = closed({
  layers: Type.Array(Type.String()),
  bytes: Type.Optional(Type.Integer({ minimum: 0, description: "That a dry run would free." })),
});
export type CollectReply = Static<typeof CollectReply>;

/** Which artifacts to list: those that carry every given label. */
export const ArtifactQuery = closed({ label: Type.Optional(LabelFilter) });

/** Artifacts of the project. */
export const ArtifactList = closed({ artifacts: Type.Array(ArtifactView) });
export type ArtifactList = Static<typeof ArtifactList>;

/** A line of a build's reply: any number of `progress`, then exactly one of the others. */
export const BuildEvent = Type.Union([
  closed({ progress: Type.String() }),
  closed({ artifact: ArtifactView }),
  ErrorBody,
]);
export type BuildEvent = Static<typeof BuildEvent>;
