import { CliError } from "../cli-error.ts";
import { ageText, type CliContext, print } from "../io.ts";

/** Options of `extend`; `none` lifts a limit, an absent one stays. */
export interface ExtendOptions {
  readonly idleTimeout?: number | "none";
  readonly maxLifetime?: number | "none";
}

/** Moves the time limits of a sandbox and prints those that are in force. */
export async function extend(context: CliContext, id: string, options: ExtendOptions): Promise<number> {
  const { idleTimeout, maxLifetime } = options;
  if (idleTimeout === undefined && maxLifetime === undefined) {
    throw new CliError("InvalidArgument", "no limit is named", { hint: "give --idle-timeout, --max-lifetime or both" });
  }
  const client = await context.connect({ start: false });
  const view = await client.sandboxes.use(id).extend({
    ...(idleTimeout === undefined ? {} : { idleTimeoutMs: limitOf(idleTimeout) }),
    ...(maxLifetime === undefined ? {} : { maxLifetimeMs: limitOf(maxLifetime) }),
  });
  const limits = { idleTimeoutMs: view.idleTimeoutMs ?? null, maxLifetimeMs: view.maxLifetimeMs ?? null };
  print(context, { id, ...limits }, () => {
    const text = (ms: number | null) => (ms === null ? "none" : ageText(ms));
    return `idle timeout ${text(limits.idleTimeoutMs)}, maximum lifetime ${text(limits.maxLifetimeMs)}\n`;
  });
  return 0;
}

function limitOf(option: number | "none"): number | null {
  return option === "none" ? null : option;
}
