import {
  ARTIFACT_KINDS,
  type ComputerShape,
  DEVICE_PROFILES,
  FIRMWARES,
  type ImageConfig,
  type ImageNotes,
} from "#core/sandbox.ts";
import { type ArtifactRecord, artifactDigest } from "../catalogue.ts";
import { isLayerDigest, jsonObject } from "../digest.ts";
import type { FoundBy } from "../reference.ts";
import { artifactKey, nameKey } from "./layout.ts";
import { damagedObject, type ObjectStore, readIfThere } from "./object-store.ts";
import { textContent } from "./push.ts";

/** An artifact has at most 500 layers and the environment of one process. */
const MAX_RECORD_BYTES = 2 ** 20;
const MAX_NAME_BYTES = 2 ** 12;

/** What a tag means in a store. */
export interface SharedName {
  readonly digest: string;
  readonly taggedAtMs: number;
}

/** Says in a store what an artifact is, then what its tag means, unless a newer meaning is there. Its layers must be there before. */
export async function putRecord(objects: ObjectStore, record: ArtifactRecord, signal: AbortSignal): Promise<void> {
  const { project, name, tag, taggedAtMs, digest, isPublished: _, ...artifact } = record;
  const body = JSON.stringify({ version: 1, ...artifact });
  await objects.put(artifactKey(project, digest), textContent(body), signal);
  const there = await findName(objects, project, { name, tag }, signal);
  if (there !== undefined && there.taggedAtMs > taggedAtMs) return;
  const meaning = JSON.stringify({ version: 1, digest, taggedAtMs });
  await objects.put(nameKey(project, { name, tag }), textContent(meaning), signal);
}

/** The artifact that a reference means in a store; `undefined` for none. Rejects with `Internal` for one that was damaged. */
export async function findRecord(
  objects: ObjectStore,
  project: string,
  reference: FoundBy,
  signal: AbortSignal,
): Promise<ArtifactRecord | undefined> {
  const { name } = reference;
  const tag = "tag" in reference ? reference.tag : "";
  const meaning =
    "tag" in reference ? await findName(objects, project, reference, signal) : { ...reference, taggedAtMs: 0 };
  if (meaning === undefined) return undefined;
  const { digest, taggedAtMs } = meaning;
  const artifact = await readArtifact(objects, project, digest, signal);
  if (artifact !== undefined) return { ...artifact, project, name, tag, digest, taggedAtMs, isPublished: true };
  if (tag === "") return undefined;
  throw damagedObject(artifactKey(project, digest), "it is missing, and a name means it");
}

/** What an artifact is, but for its name; `undefined` when the store does not have it. Rejects with `Internal` for a damaged record. */
export async function readArtifact(objects: ObjectStore, project: string, digest: string, signal: AbortSignal) {
  const key = artifactKey(project, digest);
  const text = await readIfThere(objects, key, MAX_RECORD_BYTES, signal);
  return text === undefined ? undefined : parseArtifact(text, key, digest);
}

/** What a tag means in a store; `undefined` for nothing. */
async function findName(
  objects: ObjectStore,
  project: string,
  reference: { readonly name: string; readonly tag: string },
  signal: AbortSignal,
): Promise<SharedName | undefined> {
  return await readName(objects, nameKey(project, reference), signal);
}

/** What a tag means, by its key. As `findName`. */
export async function readName(
  objects: ObjectStore,
  key: string,
  signal: AbortSignal,
): Promise<SharedName | undefined> {
  const text = await readIfThere(objects, key, MAX_NAME_BYTES, signal);
  return text === undefined ? undefined : parseName(text, key);
}

/** Throws `Internal` for a text that says no meaning of a tag. */
function parseName(text: string, key: string): SharedName {
  const { version, digest, taggedAtMs } = jsonObject(text) ?? {};
  if (version === 1 && isLayerDigest(digest) && typeof taggedAtMs === "number") return { digest, taggedAtMs };
  throw damagedObject(key, "it does not say what the name means");
}

/** Throws `Internal` unless the text describes an artifact, and the one with this digest. */
function parseArtifact(text: string, key: string, digest: string) {
  const found = jsonObject(text) ?? {};
  const { version, kind: kindText, layers, config, sizeBytes, createdAtMs, provenance, labels, parents } = found;
  const kind = ARTIFACT_KINDS.find((each) => each === kindText);
  const isSound =
    version === 1 && isNumber(sizeBytes) && isNumber(createdAtMs) && typeof provenance === "string" && isTexts(labels);
  if (!isSound || kind === undefined || !isDigests(layers) || !isDigests(parents) || !isConfig(config)) {
    throw damagedObject(key, "it does not describe an artifact");
  }
  const { env, user, workdir, image, computer } = config;
  const notes = { ...(image && { image: notesOf(image) }), ...(computer && { computer: shapeOf(computer) }) };
  const artifact = {
    kind,
    layers,
    config: { env, user, workdir, ...notes },
    sizeBytes,
    createdAtMs,
    provenance,
    labels,
    parents,
  };
  if (artifactDigest(artifact) !== digest) throw damagedObject(key, "it describes another artifact");
  return artifact;
}

function isNumber(value: unknown): value is number {
  return typeof value === "number" && Number.isFinite(value) && value >= 0;
}

function isDigests(value: unknown): value is ArtifactRecord["layers"] {
  return Array.isArray(value) && value.every(isLayerDigest);
}

function isTexts(value: unknown): value is Readonly<Record<string, string>> {
  return (
    typeof value === "object" &&
    value !== null &&
    !Array.isArray(value) &&
    Object.values(value).every((text) => typeof text === "string")
  );
}

function isConfig(value: unknown): value is ImageConfig {
  if (typeof value !== "object" || value === null) return false;
  const isOptional = (name: "user" | "workdir") => !(name in value) || typeof Reflect.get(value, name) === "string";
  const isSound = "env" in value && isTexts(value.env) && isOptional("user") && isOptional("workdir");
  return (
    isSound && (!("image" in value) || isNotes(value.image)) && (!("computer" in value) || isShape(value.computer))
  );
}

function isShape(value: unknown): value is ComputerShape {
  if (typeof value !== "object" || value === null || !("firmware" in value) || !("devices" in value)) return false;
  const isOne = (words: readonly unknown[], word: unknown) => words.includes(word);
  const isAgent = !("agent" in value) || typeof value.agent === "boolean";
  return isOne(FIRMWARES, value.firmware) && isOne(DEVICE_PROFILES, value.devices) && isAgent;
}

function shapeOf({ firmware, devices, agent }: ComputerShape): ComputerShape {
  return { firmware, devices, ...(agent === undefined ? {} : { agent }) };
}

function isNotes(value: unknown): value is ImageNotes {
  if (typeof value !== "object" || value === null) return false;
  const isWords = (name: "command" | "entrypoint") => !(name in value) || isList(Reflect.get(value, name));
  return (!("labels" in value) || isTexts(value.labels)) && isWords("command") && isWords("entrypoint");
}

function isList(value: unknown): value is readonly string[] {
  return Array.isArray(value) && value.every((word) => typeof word === "string");
}

/** Without what this version does not know: the digest tells when that matters. */
function notesOf({ labels, command, entrypoint }: ImageNotes): ImageNotes {
  return { ...(labels && { labels }), ...(command && { command }), ...(entrypoint && { entrypoint }) };
}
