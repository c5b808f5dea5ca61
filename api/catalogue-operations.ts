import { ArtifactView, CollectQuery, CollectReply, DeriveRequest, TagRequest } from "./artifacts.ts";
import { StoreCollectReply } from "./nodes.ts";
import { BASE, type Operation } from "./operation.ts";

/** The calls about names of artifacts, and about sharing them. */
export const CATALOGUE_OPERATIONS = {
  collectArtifacts: {
    ...BASE,
    method: "POST",
    path: "/v1/artifacts/collect",
    summary: "Remove what no tag, sandbox or create needs from the node, unless it is younger than an hour.",
    query: CollectQuery,
    reply: CollectReply,
  },
  collectStore: {
    ...BASE,
    method: "POST",
    path: "/v1/store/collect",
    summary: "Remove what no tag and no node needs from the store that nodes share.",
    query: CollectQuery,
    reply: StoreCollectReply,
  },
  tagArtifact: {
    ...BASE,
    method: "POST",
    path: "/v1/artifacts/{name}/tags",
    summary: "Make a tag mean this artifact.",
    body: TagRequest,
    status: 201,
    reply: ArtifactView,
  },
  deriveArtifact: {
    ...BASE,
    method: "POST",
    path: "/v1/artifacts/{name}/derive",
    summary: "Make an artifact of another kind of its layers, or of those that it has over another one.",
    body: DeriveRequest,
    status: 201,
    reply: ArtifactView,
  },
  pushArtifact: {
    ...BASE,
    method: "POST",
    path: "/v1/artifacts/{name}/push",
    summary: "Put it into the store that nodes share; answers when it is there.",
    reply: ArtifactView,
  },
  pullArtifact: {
    ...BASE,
    method: "POST",
    path: "/v1/artifacts/{name}/pull",
    summary: "Bring what the name means in the store to this node.",
    reply: ArtifactView,
  },
} as const satisfies Record<string, Operation>;
