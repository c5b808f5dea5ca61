import assert from "node:assert/strict";
import { test } from "node:test";
import { s3Store } from "../s3.ts";
import { contentOf } from "./content.ts";
import { startS3Peer } from "./s3-peer.ts";

const soon = () => AbortSignal.timeout(60_000);

test("the peer answers every list while objects are put again, as S3 does", async () => {
  await using peer = await startS3Peer();
  const { bucket, endpoint } = peer;
  const credentials = async () => peer.credentials;
  await using store = s3Store({ bucket, prefix: "", region: "us-east-1", endpoint, credentials, firstRetryMs: 1 });
  let isOver = false;
  const put = async (key: string) => {
    for (let n = 0; n < 60; n += 1) await store.put(key, contentOf(Buffer.from(`${n}`)), soon());
  };
  const putting = Promise.all(["a", "b", "c"].map(put)).finally(() => {
    isOver = true;
  });
  let lists = 0;
  for (; !isOver; lists += 1) await Array.fromAsync(store.list("", soon()));
  await putting;
  const asked = peer.seen.filter(({ method, url }) => method === "GET" && url.includes("list-type"));
  // One that failed would have been asked for again.
  assert.equal(asked.length, lists);
});
