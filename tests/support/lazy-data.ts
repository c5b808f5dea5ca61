import assert from "node:assert/strict";
import { readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { sha256Hex } from "#images/digest.ts";
import type { S3Peer } from "#images/store/test-support/s3-peer.ts";
import type { Sandbox } from "#sdk";
import type { TestNode } from "./node.ts";
import { BASE, output } from "./sandbox.ts";
import { tarOf } from "./tar.ts";

/** In the workspace, by number, each of so many bytes. */
export const FILES = 12;
const FILE_BYTES = 2 ** 20;
/** What a sandbox with it is made of. */
export const WORK = { base: BASE, workspace: "work" };

/** Of a node whose layers come from the peer. */
export function nodeOptions({ bucket, endpoint, credentials }: S3Peer, timeout: string) {
  return {
    words: [`--store=s3://${bucket}/dsec`, `--store-endpoint=${endpoint}`, timeout],
    env: { AWS_ACCESS_KEY_ID: credentials.accessKeyId, AWS_SECRET_ACCESS_KEY: credentials.secretAccessKey },
  };
}

/** Makes artifacts whose data lies in the store alone. Resolves with the SHA-256 of each file. */
export async function makeLazy(node: TestNode, peer: S3Peer): Promise<readonly string[]> {
  await node.client.artifacts.build({ name: BASE, suite: BASE });
  const entries = Array.from({ length: FILES }, (_, file) => {
    return { name: `data/${file}`, mode: 0o644, uid: 0, gid: 0, body: bodyOf(file) };
  });
  await node.client.artifacts.import(await tarOf(...entries), { name: "work", kind: "workspace" });
  for (const name of [BASE, "work"]) await node.client.artifacts.push(name);
  await node.stop();
  const put = peer.seen.filter(({ method }) => method === "PUT").map(({ url }) => url.split("/").at(-1) ?? "");
  assert.ok(put.some((name) => name.startsWith("frames-")) && !put.includes("data"), "data is put in frames");
  const blobs = join(node.dataDir, "images/blobs");
  for (const hex of readdirSync(blobs)) rmSync(join(blobs, hex), { recursive: true });
  await node.start();
  return entries.map(({ body }) => sha256Hex(body));
}

/** From now on the store does not answer; resolves when it was asked. */
export function holdStore(peer: S3Peer): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  peer.fault = () => {
    resolve();
    return { type: "hang" };
  };
  return promise;
}

/** Differs all over, so that no piece is like another. */
function bodyOf(file: number): Buffer {
  const body = Buffer.alloc(FILE_BYTES);
  for (let at = 0; at < FILE_BYTES; at += 4) body.writeUInt32LE((file * FILE_BYTES + at * 2_654_435_761) % 2 ** 32, at);
  return body;
}

/** What a sandbox reads in that file. */
export async function sumOf(sandbox: Sandbox, file: number): Promise<string> {
  return (await output(sandbox, ["/bin/busybox", "sha256sum", `/data/${file}`])).split(" ")[0] ?? "";
}
