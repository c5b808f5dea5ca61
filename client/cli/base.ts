import {
  type BuildRequest,
  type CallOptions,
  type Client,
  type CreateSandbox,
  NotFoundError,
  type Sandbox,
} from "#sdk";
import type { Io } from "./io.ts";

/** Bases that are made on first use. */
const DEFAULT_BASES: Readonly<Record<string, BuildRequest>> = {
  debian: { name: "debian", include: ["python3"] },
  "host-busybox": { name: "host-busybox", suite: "host-busybox" },
};

/** Creates a sandbox; a default base that nobody has built yet is built first, with its progress on stderr. */
export async function createSandbox(
  client: Client,
  request: CreateSandbox,
  io: Io,
  options: CallOptions,
): Promise<Sandbox> {
  try {
    return await client.sandboxes.create(request, options);
  } catch (error) {
    const missing = Object.hasOwn(DEFAULT_BASES, request.base) ? DEFAULT_BASES[request.base] : undefined;
    if (!(error instanceof NotFoundError) || missing === undefined) throw error;
    // Something else may be what was not found, or somebody else has just built it: then the second try tells.
    const known = await client.artifacts.list(options);
    if (!known.some(({ name }) => name === request.base)) await buildBase(client, missing, io, options);
    return client.sandboxes.create(request, options);
  }
}

async function buildBase(client: Client, build: BuildRequest, io: Io, options: CallOptions): Promise<void> {
  io.stderr.write(`dsec: building the base ${build.name}: its first use, done once\n`);
  const onProgress = (line: string) => io.stderr.write(`dsec: ${line}\n`);
  await client.artifacts.build(build, { ...options, onProgress });
}
