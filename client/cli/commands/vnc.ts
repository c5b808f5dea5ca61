import { CliError } from "../cli-error.ts";
import { type CliContext, print, printable } from "../io.ts";
import { LOCAL_HOST, servePorts } from "../local-ports.ts";

/** Leads VNC viewers of this machine to the display of a full VM, until the person leaves. */
export async function vnc(context: CliContext, id: string, port = "0"): Promise<number> {
  if (!/^\d{1,5}$/.test(port) || Number(port) > 65_535) {
    throw new CliError("InvalidArgument", `${JSON.stringify(port)} is no port`, { hint: "a number from 1 to 65535" });
  }
  const client = await context.connect({ start: false });
  const { computer } = client.sandboxes.use(id);
  const display = {
    local: Number(port),
    name: "display",
    connect: () => computer.display(),
    listening: (local: number) => {
      const shown = { local: { host: LOCAL_HOST, port: local }, sandbox: id };
      print(context, shown, () => `${LOCAL_HOST}:${local} -> the display of ${printable(id)}\n`);
    },
  };
  await servePorts(context, [display], (signal) => computer.info({ signal }));
  return 0;
}
