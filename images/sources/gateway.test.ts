import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { openGateway } from "#host/fetch/gateway.ts";
import { parseNetworks } from "#host/fetch/internal.ts";
import { temporaryDirectory, temporaryStore } from "../test-support/fixtures.ts";
import { makeRepository, serveOverHttp } from "../test-support/git.ts";
import { importFrom } from "./import-from.ts";
import type { ImportSource } from "./source.ts";

test("what members of a project import comes through the gateway: from open networks, and from no other internal ones", async () => {
  using made = await temporaryStore();
  using root = temporaryDirectory();
  makeRepository(root.path, "project");
  await using server = await serveOverHttp(root.path);
  const importing = async (source: ImportSource, networks: string) => {
    await using gateway = await openGateway(parseNetworks(networks));
    const registries = { authFile: undefined, registriesFile: undefined };
    const { signal } = new AbortController();
    return await importFrom(source, {
      store: made.store,
      kind: "workspace",
      registries,
      gateway,
      signal,
      progress: () => undefined,
    });
  };
  const git = { type: "git", url: `${server.url}/project` } as const;
  assert.match((await importing(git, "127.0.0.1")).provenance, /project/);
  const refused = [
    git,
    { type: "git", url: "git://127.0.0.1/x" },
    { type: "registry", image: "127.0.0.1:5000/x" },
    { type: "registry", image: "localhost/x" },
  ] as const;
  for (const source of refused) {
    await assert.rejects(importing(source, "10.0.0.0/8"), { kind: "PermissionDenied" }, JSON.stringify(source));
  }
  assert.deepEqual(readdirSync(join(made.store.dir, "tmp")), []);
});
