import { type CallOptions, type Client, type CreateSandbox, NotFoundError, type Sandbox } from "#sdk";
import type { Io } from "./io.ts";

/** Bases that are made on first use: what to build under which name. */
const DEFAULT_BASES: readonly string[] = ["debian", "host-busybox"];

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
    if (!(error instanceof NotFoundError) || !DEFAULT_BASES.includes(request.base)) throw error;
    const known = await client.artifacts.list(options);
    if (known.some((artifact) => artifact.name === request.base)) throw error;
  }
  await buildBase(client, request.base, io, options);
  return client.sandboxes.create(request, options);
}

async function buildBase(client: Client, name: string, io: Io, options: CallOptions): Promise<void> {
  io.stderr.write(`dsec: building the base ${name}: its first use, done once\n`);
  const onProgress = (line: string) => io.stderr.write(`dsec: ${line}\n`);
  await client.artifacts.build({ name }, { ...options, onProgress });
}
