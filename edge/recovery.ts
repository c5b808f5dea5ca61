import { readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { Backend } from "#core/backend.ts";
import { hasCode } from "#core/errors.ts";
import { type EdgeId, edgeOf, parseSandboxId, type SandboxId } from "#core/ids.ts";
import type { EdgeLog } from "#edge/config.ts";
import type { SandboxDriver } from "#edge/driver.ts";

/** Sandboxes taken up at once: enough to hide waits, too few to flood a node that just started. */
const AT_ONCE = 16;

/** Runs `work` for every item, a bounded number at a time. */
export async function forEachOf<T>(items: Iterable<T>, work: (item: T) => Promise<void>): Promise<void> {
  const iterator = items[Symbol.iterator]();
  const worker = async () => {
    for (let next = iterator.next(); next.done !== true; next = iterator.next()) await work(next.value);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
}

/** Takes up what the journal names, then removes what it does not. Resolves when every sandbox is settled. */
export async function recoverAll(options: {
  readonly edge: EdgeId;
  readonly dataDir: string;
  readonly log: EdgeLog;
  readonly backends: Iterable<Backend>;
  readonly drivers: ReadonlyMap<SandboxId, SandboxDriver>;
}): Promise<void> {
  const { drivers, log } = options;
  await forEachOf([...drivers.values()], (driver) => driver.recover());
  for (const backend of options.backends) await sweep(backend, options);
  sweepOutputs(join(options.dataDir, "output"), drivers);
  if (drivers.size > 0) log.info({ sandboxes: drivers.size }, "took up the sandboxes of the journal");
}

/** Destroys what carries an id of this edge and no record. A failure leaves it to the next start, and is told. */
async function sweep(
  backend: Backend,
  options: { readonly edge: EdgeId; readonly log: EdgeLog; readonly drivers: ReadonlyMap<SandboxId, SandboxDriver> },
): Promise<void> {
  const inventory = await backend.inventory();
  const found = new Set(Object.values(inventory).flatMap((ids) => [...ids]));
  await forEachOf(found, async (text) => {
    const id = ownId(text, options.edge);
    if (id === undefined || options.drivers.has(id)) return;
    try {
      await backend.destroy(id);
      options.log.info({ sandbox: id }, "removed a sandbox that no record names");
    } catch (error) {
      options.log.warn({ sandbox: id, err: error }, "cannot remove a sandbox that no record names");
    }
  });
}

function ownId(text: string, edge: EdgeId): SandboxId | undefined {
  try {
    const id = parseSandboxId(text);
    return edgeOf(id) === edge ? id : undefined;
  } catch {
    return undefined;
  }
}

function sweepOutputs(dir: string, drivers: ReadonlyMap<string, SandboxDriver>): void {
  try {
    for (const name of readdirSync(dir)) {
      if (!drivers.has(name)) rmSync(join(dir, name), { recursive: true, force: true });
    }
  } catch (error) {
    if (!hasCode(error, "ENOENT")) throw error;
  }
}
