import {
  type BuildRequest,
  type CallOptions,
  type Client,
  type CreateSandbox,
  NotFoundError,
  type Sandbox,
} from "#sdk";
import { type Io, printable } from "./io.ts";

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
    if (!(error instanceof NotFoundError) || !Object.hasOwn(DEFAULT_BASES, request.base)) throw error;
    // Something else may be what was not found, or somebody else has just built it: then the second try tells.
    await ensureBase(client, request.base, io, options);
    return client.sandboxes.create(request, options);
  }
}

/** Builds a default base that nobody has built yet; leaves every other name to the create. */
export async function ensureBase(client: Client, base: string, io: Io, options: CallOptions): Promise<void> {
  const build = Object.hasOwn(DEFAULT_BASES, base) ? DEFAULT_BASES[base] : undefined;
  if (build === undefined) return;
  const known = await client.artifacts.list(options);
  if (!known.some(({ name }) => name === base)) await buildBase(client, build, io, options);
}

async function buildBase(client: Client, build: BuildRequest, io: Io, options: CallOptions): Promise<void> {
  io.stderr.write(`dsec: building the base ${build.name}: its first use, done once\n`);
  const onProgress = (line: string) => io.stderr.write(`dsec: ${printable(line)}\n`);
  await client.artifacts.build(build, { ...options, onProgress });
}
