import assert from "node:assert/strict";
import { chmodSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { inspect } from "node:util";
import { temporaryDirectory } from "../test-support/fixtures.ts";
import { credentialsFile, takeCredentials } from "./credentials.ts";

test("credentials are taken out of the environment, so that nothing started later has them", () => {
  const env = { AWS_ACCESS_KEY_ID: "id", AWS_SECRET_ACCESS_KEY: "key", AWS_SESSION_TOKEN: "token", PATH: "/bin" };
  assert.deepEqual(takeCredentials(env), { accessKeyId: "id", secretAccessKey: "key", sessionToken: "token" });
  assert.deepEqual(env, { PATH: "/bin" });
  assert.equal(takeCredentials(env), undefined);
});

test("half of the credentials are an error that does not show them", () => {
  const halves = [{ AWS_ACCESS_KEY_ID: "id" }, { AWS_SECRET_ACCESS_KEY: "key-to-hide" }];
  for (const env of halves) {
    assert.throws(
      () => takeCredentials(env),
      (error: unknown) => !inspect(error).includes("key-to-hide") && /no whole credentials/.test(inspect(error)),
    );
  }
});

test("a credentials file is read anew each time, from its default section", async () => {
  using directory = temporaryDirectory();
  const path = join(directory.path, "credentials");
  const text = (key: string) =>
    `[other]\naws_access_key_id=wrong\n[default]\naws_access_key_id = id\naws_secret_access_key=${key}\n# end\n`;
  writeFileSync(path, text("one"), { mode: 0o600 });
  const source = credentialsFile(path);
  assert.equal((await source()).secretAccessKey, "one");
  writeFileSync(path, text("two"));
  assert.deepEqual(await source(), { accessKeyId: "id", secretAccessKey: "two", sessionToken: undefined });
});

test("a credentials file that others can read, that lacks a line, or that is missing is refused", async () => {
  using directory = temporaryDirectory();
  const path = join(directory.path, "credentials");
  const source = credentialsFile(path);
  await assert.rejects(source(), { kind: "InvalidArgument" });
  writeFileSync(path, "[default]\naws_access_key_id=id\naws_secret_access_key=key-to-hide\n", { mode: 0o600 });
  chmodSync(path, 0o644);
  await assert.rejects(source(), { kind: "InvalidArgument", message: /read by others/ });
  chmodSync(path, 0o600);
  writeFileSync(path, "aws_secret_access_key=key-to-hide\n");
  await assert.rejects(source(), (error: unknown) => !inspect(error).includes("key-to-hide"));
});
