import { CliError } from "../cli-error.ts";
import { type CliContext, print, table } from "../io.ts";

/** Options of `ports`. */
export interface PortsOptions {
  readonly wait?: string;
  readonly timeout?: number;
  readonly link?: string;
}

/** Who listens in a sandbox; with `wait` until somebody does on that port, with `link` how a browser gets there. */
export async function ports(context: CliContext, id: string, options: PortsOptions): Promise<number> {
  const waited = options.wait === undefined ? undefined : portOf("--wait", options.wait);
  const linked = options.link === undefined ? undefined : portOf("--link", options.link);
  if (options.timeout !== undefined && waited === undefined) {
    throw new CliError("InvalidArgument", "--timeout says how long to wait, and nothing is waited for", {
      hint: "add --wait PORT",
    });
  }
  const client = await context.connect({ start: false });
  const sandbox = client.sandboxes.use(id);
  if (waited !== undefined) {
    await sandbox.ports.wait(waited, { timeoutMs: options.timeout }).catch((error: unknown) => {
      if (!(error instanceof DOMException) || error.name !== "TimeoutError") throw error;
      throw new CliError("DeadlineExceeded", `nobody listens on port ${waited} of ${id}`, { hint: "raise --timeout" });
    });
  }
  if (linked !== undefined) {
    const url = await sandbox.ports.open(linked);
    print(context, { url }, () => `${url}\n`);
    return 0;
  }
  const listeners = await sandbox.ports.list();
  const rows = () => listeners.map(({ port, address }) => [String(port), address]);
  print(context, { listeners }, () => table(["PORT", "ADDRESS"], rows()));
  return 0;
}

function portOf(option: string, word: string): number {
  const port = /^\d{1,5}$/.test(word) ? Number(word) : 0;
  if (port >= 1 && port <= 65_535) return port;
  throw new CliError("InvalidArgument", `${option}: ${JSON.stringify(word)} is not a port`, { hint: "1 to 65535" });
}
