import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { SandboxError } from "#core/errors.ts";
import { type ConfinedOptions, eachLine, runConfined, startConfined } from "./confined.ts";
import { type Failures, programFailure } from "./failures.ts";
import { type ImageName, parseImageName } from "./image-name.ts";

/** What a server wants to know of whoever asks. */
export interface Credentials {
  readonly username: string;
  readonly password: string;
}

/** What this node is set to when it talks to registries. */
export interface RegistrySettings {
  /** Credentials for everybody's calls that bring none, as `podman login` and `docker login` write them. */
  readonly authFile: string | undefined;
  /** Mirrors and short names, instead of /etc/containers/registries.conf. */
  readonly registriesFile: string | undefined;
}

/** One image in a registry and how to get at it. */
export interface RegistryOptions extends Omit<ConfinedOptions, "words" | "package" | "env"> {
  readonly image: string;
  readonly credentials?: Credentials | undefined;
  /** Plain HTTP, and certificates that nobody vouches for, will do. */
  readonly insecure?: boolean | undefined;
  readonly settings: RegistrySettings;
}

/** Documents of an image are small. */
const MAX_MANIFEST_BYTES = 4 * 2 ** 20;
const RETRIES = 2;

/**
 * The manifest or index that an image's name means now, as its registry has it; its SHA-256 is the digest. Errors: `NotFound`,
 * `PermissionDenied`, `Unavailable`, `FailedPrecondition` for a registry without a certificate.
 */
export async function readManifest(options: RegistryOptions): Promise<Buffer> {
  const { repository, tag, digest } = parseImageName(options.image);
  const words = ["inspect", "--raw", `--retry-times=${RETRIES}`, await authWord(options), ...tlsWord("", options)];
  const name = `docker://${repository}${digest === undefined ? `:${tag ?? "latest"}` : `@${digest}`}`;
  const end = await runConfined(skopeo(options, [...words, name]), MAX_MANIFEST_BYTES);
  if (end.code !== 0) throw programFailure(`reading ${options.image}`, end, FAILURES);
  return end.output;
}

/**
 * Copies the image with this digest, of an index the part for `architecture`, into the OCI layout `layout` under the name
 * `image`. Layers at other addresses are not fetched. Errors as `readManifest`'s, `InvalidArgument` when a digest is wrong,
 * `StorageFull`, and `TooLarge` past `maxFileBytes`.
 */
export async function copyFromRegistry(
  options: RegistryOptions,
  { digest, architecture, layout }: { readonly digest: string; readonly architecture: string; readonly layout: string },
): Promise<void> {
  const { repository } = parseImageName(options.image);
  const words = [`--override-os=linux`, `--override-arch=${architecture}`, "copy", `--retry-times=${RETRIES}`];
  const access = [(await authWord(options)).replace("--", "--src-"), ...tlsWord("src-", options)];
  const names = [`docker://${repository}@${digest}`, `oci:${layout}:image`];
  await copy(options, [...words, ...access, ...names], `fetching ${options.image}`);
}

/** Copies the image `image` of an OCI layout into a registry, under a name without a digest. Errors as `readManifest`'s. */
export async function copyToRegistry(options: RegistryOptions, layout: string): Promise<void> {
  const { repository, tag = "latest", digest } = parseImageName(options.image);
  if (digest !== undefined) {
    throw new SandboxError("InvalidArgument", `${options.image} is a name with a digest`, {
      hint: "give a tag: the digest is what the image will have",
    });
  }
  const access = [(await authWord(options)).replace("--", "--dest-"), ...tlsWord("dest-", options)];
  const words = ["copy", `--retry-times=${RETRIES}`, ...access, `oci:${layout}:image`];
  await copy(options, [...words, `docker://${repository}:${tag}`], `sending ${options.image}`);
}

async function copy(options: RegistryOptions, words: readonly string[], doing: string): Promise<void> {
  await using running = startConfined(skopeo(options, words));
  eachLine(running.stdout, options.onLine ?? (() => undefined));
  const end = await running.ended;
  if (end.code !== 0) throw programFailure(doing, end, FAILURES);
}

function skopeo(options: RegistryOptions, words: readonly string[]): ConfinedOptions {
  const { registriesFile } = options.settings;
  const settings = registriesFile === undefined ? [] : [`--registries-conf=${registriesFile}`];
  return { ...options, words: ["skopeo", ...settings, ...words], package: "skopeo" };
}

/** A file in any case: without the word skopeo would take what root of this node has logged in to. */
async function authWord({ credentials, dir, image, settings }: RegistryOptions): Promise<string> {
  if (credentials === undefined && settings.authFile !== undefined) return `--authfile=${settings.authFile}`;
  const file = join(dir, "auth.json");
  await writeFile(file, JSON.stringify({ auths: authsOf(parseImageName(image), credentials) }), { mode: 0o600 });
  return `--authfile=${file}`;
}

function authsOf({ registry }: ImageName, credentials: Credentials | undefined) {
  if (credentials === undefined) return {};
  const auth = Buffer.from(`${credentials.username}:${credentials.password}`).toString("base64");
  return { [registry]: { auth } };
}

/** Without the word the node's own file of registries decides. */
function tlsWord(side: "" | "src-" | "dest-", { insecure }: RegistryOptions): readonly string[] {
  return insecure === true ? [`--${side}tls-verify=false`] : [];
}

const FAILURES: Failures = [
  [
    /manifest unknown|name unknown|repository name not known|not found: manifest|status(code:)? 404|status code from registry 404/i,
    "NotFound",
    "check its name and tag",
  ],
  [
    /unauthorized|authentication required|denied|invalid username|status(code:)? 40[13]/i,
    "PermissionDenied",
    "give credentials for the registry",
  ],
  [
    /no image found in (manifest list|image index)/i,
    "InvalidArgument",
    "the registry has it for other processors only",
  ],
  [/exceeded maximum allowed size/i, "TooLarge", "it is no image"],
  [
    /x509|server gave HTTP response|certificate/i,
    "FailedPrecondition",
    "make the node trust the registry's certificate, or say that it may be insecure",
  ],
  [
    /did not match|does not match|size mismatch|unexpected (size|digest)/i,
    "InvalidArgument",
    "the image is damaged in its registry",
  ],
  [
    /unsupported|unknown media type|unrecognized|cannot convert|invalid character/i,
    "InvalidArgument",
    "it is no image that runs on Linux",
  ],
  [
    /connection refused|no such host|timeout|EOF|reset by peer|status 5\d\d|toomanyrequests|network is unreachable/i,
    "Unavailable",
    "check that the node reaches the registry, and try again",
  ],
];
