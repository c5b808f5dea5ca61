import type { SandboxId } from "#core/ids.ts";
import type { SandboxFilter } from "#core/node.ts";
import type { SandboxInfo, SandboxSpec } from "#core/sandbox.ts";

/** An answer ends when it has so much, so that it fits a message: a sandbox may have an environment of megabytes. */
const ENOUGH_BYTES = 1_500_000;

interface Listed {
  readonly spec: SandboxSpec;
  readonly info: SandboxInfo;
}

/** Those that the filter asks for, in the order of their ids; see `Node.list`. */
export function listSandboxes(known: ReadonlyMap<SandboxId, Listed>, filter: SandboxFilter): readonly SandboxInfo[] {
  const { project, after, limit = Number.POSITIVE_INFINITY } = filter;
  const labels = Object.entries(filter.labels ?? {});
  const matching = [...known]
    .filter(([id]) => after === undefined || id > after)
    .filter(([, { spec }]) => project === undefined || spec.project === project)
    .filter(([, { spec }]) => labels.every(([name, value]) => spec.labels[name] === value))
    .sort(([a], [b]) => (a < b ? -1 : 1));
  const found: SandboxInfo[] = [];
  let bytes = 0;
  for (const [, { info }] of matching) {
    bytes += JSON.stringify(info).length;
    if (found.length >= limit || (found.length > 0 && bytes > ENOUGH_BYTES)) break;
    found.push(info);
  }
  return found;
}
