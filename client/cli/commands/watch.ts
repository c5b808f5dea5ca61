import type { WatchView } from "#sdk";
import { Interrupts } from "../interrupts.ts";
import { type CliContext, printable, writeTo } from "../io.ts";
import { bytesOrText } from "../words.ts";

/** Options of `watch`. */
export interface WatchWords {
  readonly recursive?: boolean;
  readonly user?: string;
}

/** What happens at a path of a sandbox, one line an event, until it is gone or the person leaves. */
export async function watch(context: CliContext, id: string, path: string, options: WatchWords): Promise<number> {
  const client = await context.connect({ start: false });
  using interrupts = new Interrupts(context.io);
  const { recursive = false, user } = options;
  const rights = user === undefined ? {} : { user };
  try {
    const events = client.sandboxes
      .use(id)
      .files.watch(bytesOrText(path), { ...rights, recursive, signal: interrupts.signal });
    for await (const event of events) {
      const line = context.json ? JSON.stringify(event) : textOf(event);
      if (!(await writeTo(context.io.stdout, Buffer.from(`${line}\n`)))) return 0;
    }
    return 0;
  } catch (error) {
    if (interrupts.left !== undefined) return interrupts.left;
    throw error;
  }
}

function textOf({ type, path, from, directory }: WatchView): string {
  const name = (value: WatchView["path"]) => `${printable(nameOf(value))}${directory === true ? "/" : ""}`;
  if (path === undefined) return type;
  return from === undefined ? `${type} ${name(path)}` : `${type} ${name(from)} -> ${name(path)}`;
}

function nameOf(value: WatchView["path"]): string {
  return typeof value === "object" ? Buffer.from(value.base64, "base64").toString("utf8") : (value ?? "");
}
