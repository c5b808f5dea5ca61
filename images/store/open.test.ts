import assert from "node:assert/strict";
import { test } from "node:test";
import { openObjectStore } from "./open.ts";

const keys = { accessKeyId: "id", secretAccessKey: "key" };

test("a store is a directory or a part of a bucket", () => {
  assert.equal(openObjectStore({ store: "/mnt/layers" }, undefined).name, "directory /mnt/layers");
  assert.equal(openObjectStore({ store: "s3://layers" }, keys).name, "s3://layers/");
  const place = { store: "s3://layers/team/dsec", endpoint: "http://127.0.0.1:9000/", credentialsFile: "/none" };
  assert.equal(openObjectStore(place, undefined).name, "s3://layers/team/dsec/ at http://127.0.0.1:9000");
});

test("what is no store, or says more than its kind takes, is refused", () => {
  const places = [
    { store: "relative/path" },
    { store: "s3://" },
    { store: "s3://UPPER/x" },
    { store: "s3://layers/../x" },
    { store: "s3://layers/a//b" },
    { store: "https://layers/x" },
    { store: "/mnt/layers", endpoint: "http://localhost" },
    { store: "/mnt/layers", region: "eu-west-1" },
    { store: "s3://layers", endpoint: "ftp://localhost" },
    { store: "s3://layers", endpoint: "http://host/path" },
  ];
  for (const place of places) assert.throws(() => openObjectStore(place, keys), { kind: "InvalidArgument" });
  assert.throws(() => openObjectStore({ store: "s3://layers" }, undefined), { kind: "InvalidArgument" });
  assert.throws(
    () => openObjectStore({ store: "s3://layers", endpoint: "http://me:hidden@host" }, keys),
    (error: unknown) => error instanceof Error && !error.message.includes("hidden"),
  );
});
