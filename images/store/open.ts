import { isAbsolute } from "node:path";
import { SandboxError } from "#core/errors.ts";
import { credentialsFile, type S3Credentials } from "./credentials.ts";
import { directoryStore } from "./directory.ts";
import type { ObjectStore } from "./object-store.ts";
import { s3Store } from "./s3.ts";

/** Where a store is, as an operator writes it. */
export interface StorePlace {
  /** An absolute path, or `s3://bucket/prefix`. */
  readonly store: string;
  /** S3 only: the URL of a server other than Amazon's. */
  readonly endpoint?: string | undefined;
  /** S3 only. */
  readonly region?: string | undefined;
  /** S3 only: a file of credentials; it goes before those of the environment. */
  readonly credentialsFile?: string | undefined;
}

const BUCKET = /^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/;
const PREFIX = /^(?:[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}\/)*$/;
const MAX_PREFIX_LENGTH = 300;
const DEFAULT_REGION = "us-east-1";

/** Opens a store without asking it anything yet. Throws `InvalidArgument` for a place that can be none. */
export function openObjectStore(place: StorePlace, environment: S3Credentials | undefined): ObjectStore {
  const { store, endpoint, region } = place;
  if (isAbsolute(store)) {
    const extra = Object.entries(place).find(([name, value]) => name !== "store" && value !== undefined);
    if (extra !== undefined) throw wrong(`${extra[0]} says nothing about the directory ${store}`);
    return directoryStore(store);
  }
  const [, bucket = "", path = ""] = /^s3:\/\/([^/]*)(?:\/(.*))?$/.exec(store) ?? [];
  const prefix = path === "" || path.endsWith("/") ? path : `${path}/`;
  if (!BUCKET.test(bucket) || !PREFIX.test(prefix) || prefix.length > MAX_PREFIX_LENGTH) {
    throw wrong(`${JSON.stringify(store)} is no store`);
  }
  const credentials = credentialsOf(place, environment);
  return s3Store({ bucket, prefix, region: region ?? DEFAULT_REGION, endpoint: urlOf(endpoint), credentials });
}

function credentialsOf(place: StorePlace, environment: S3Credentials | undefined) {
  if (place.credentialsFile !== undefined) return credentialsFile(place.credentialsFile);
  if (environment !== undefined) return async () => environment;
  throw new SandboxError("InvalidArgument", `${place.store} needs credentials`, {
    hint: "set --store-credentials, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
  });
}

/** A name or password in it would show in messages. */
function urlOf(endpoint: string | undefined): string | undefined {
  if (endpoint === undefined) return undefined;
  const url = URL.parse(endpoint);
  const isPlain = url !== null && /^https?:$/.test(url.protocol) && url.username === "" && url.password === "";
  if (isPlain && url.pathname === "/" && url.search === "" && url.hash === "") return url.origin;
  throw wrong("the endpoint of the store is not a plain URL such as https://minio.example.org:9000");
}

function wrong(message: string): SandboxError {
  return new SandboxError("InvalidArgument", message, {
    hint: "a store is the absolute path of a directory, or s3://bucket/prefix with an endpoint, a region and credentials",
  });
}
