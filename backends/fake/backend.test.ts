import { SandboxError } from "#core/errors.ts";
import { newSandboxId, parseEdgeId } from "#core/ids.ts";
import { backendContract } from "#core/suites/backend-suite.ts";
import { openFakeBackend } from "./backend.ts";
import type { FakeScript } from "./config.ts";
import { FakeHost } from "./host.ts";
import { aFakeSpec } from "./spec.ts";

backendContract("backends/fake", async () => {
  const host = new FakeHost();
  const doomed = newSandboxId(parseEdgeId("fake"));
  let failing = true;
  const script: FakeScript = (moment, id) => {
    if (moment !== "created" || id !== doomed || !failing) return;
    failing = false;
    throw new SandboxError("Internal", "as scripted");
  };
  return {
    backend: openFakeBackend(host, { script }),
    atOnce: 32,
    restart: async () => openFakeBackend(host),
    spec: () => aFakeSpec(),
    failingSpec: () => aFakeSpec({ id: doomed }),
    killAgent: async (handle) => host.get(handle.id).die(),
    async [Symbol.asyncDispose]() {},
  };
});
