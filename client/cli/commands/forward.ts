import { CliError } from "../cli-error.ts";
import { type CliContext, print, printable } from "../io.ts";
import { LOCAL_HOST, servePorts } from "../local-ports.ts";

/** One port of this machine and the port of the sandbox that stands behind it. `local` 0: one that is free. */
interface Forward {
  readonly local: number;
  readonly remote: number;
}

/** Makes ports of a sandbox ports of this machine, until the person leaves: then every connection is cut. */
export async function forward(context: CliContext, id: string, words: readonly string[]): Promise<number> {
  const forwards = words.map(readForward);
  const client = await context.connect({ start: false });
  const sandbox = client.sandboxes.use(id);
  const ports = forwards.map(({ local, remote }) => ({
    local,
    name: `port ${remote}`,
    connect: (signal: AbortSignal) => sandbox.ports.connect(remote, { signal }),
    listening: (port: number) => {
      const shown = { local: { host: LOCAL_HOST, port }, sandbox: id, port: remote };
      print(context, shown, () => `${LOCAL_HOST}:${port} -> ${printable(id)}:${remote}\n`);
    },
  }));
  await servePorts(context, ports, (signal) => sandbox.info({ signal }));
  return 0;
}

/** `8080:80`, `:80` and `0:80` for a free one, `80` for the same on both sides. */
function readForward(word: string): Forward {
  const match = /^(?:(\d{0,5}):)?(\d{1,5})$/.exec(word);
  const remote = Number(match?.[2]);
  const local = match?.[1] === undefined ? remote : Number(match[1]);
  if (match !== null && remote >= 1 && remote <= 65_535 && local <= 65_535) return { local, remote };
  throw new CliError("InvalidArgument", `${JSON.stringify(word)} is not LOCAL:PORT`, {
    hint: "8080:80 leads from port 8080 of this machine to port 80 of the sandbox; :80 takes a free one",
  });
}
