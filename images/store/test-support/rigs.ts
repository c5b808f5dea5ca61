import { join } from "node:path";
import { temporaryDirectory } from "../../test-support/fixtures.ts";
import { directoryStore } from "../directory.ts";
import type { ObjectStore } from "../object-store.ts";
import { s3Store } from "../s3.ts";
import { startS3Peer } from "./s3-peer.ts";

/** A store of a test's own. */
export interface SomeStore extends AsyncDisposable {
  readonly objects: ObjectStore;
  /** Where the bytes of an object lie. */
  file(key: string): string;
  /** Lets every request fail from now on, or no longer. */
  breakDown(isBroken: boolean): void;
}

/** Every kind of store, by name. */
export const STORES: Readonly<Record<string, () => Promise<SomeStore>>> = {
  "a directory": async () => {
    const directory = temporaryDirectory();
    let isBroken = false;
    const real = directoryStore(directory.path);
    const gone = directoryStore(join(directory.path, "not-mounted"));
    return {
      // The store of a directory that comes and goes: each call takes the one of that moment.
      objects: new Proxy(real, {
        get(_target, name) {
          const store = isBroken ? gone : real;
          const value: unknown = Reflect.get(store, name, store);
          return typeof value === "function" ? value.bind(store) : value;
        },
      }),
      file: (key) => join(directory.path, key),
      breakDown: (broken) => {
        isBroken = broken;
      },
      async [Symbol.asyncDispose]() {
        directory[Symbol.dispose]();
      },
    };
  },
  S3: async () => {
    const peer = await startS3Peer();
    const { bucket, endpoint, credentials } = peer;
    const place = { bucket, prefix: "", region: "us-east-1", endpoint, credentials: async () => credentials };
    const objects = s3Store({ ...place, firstRetryMs: 1 });
    return {
      objects,
      file: (key) => peer.file(key),
      breakDown(isBroken) {
        peer.fault = () => (isBroken ? { type: "status", status: 500 } : undefined);
      },
      async [Symbol.asyncDispose]() {
        await objects[Symbol.asyncDispose]();
        await peer[Symbol.asyncDispose]();
      },
    };
  },
};
