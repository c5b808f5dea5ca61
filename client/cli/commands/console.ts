import { once } from "node:events";
import type { Connection } from "#sdk";
import { DetachKeys } from "../detach-keys.ts";
import { Interrupts } from "../interrupts.ts";
import { type CliContext, writeTo } from "../io.ts";

/** Joins the serial port until the person leaves, by Ctrl-P Ctrl-Q on a terminal, or the computer ends. */
export async function console(context: CliContext, id: string): Promise<number> {
  const { io } = context;
  const client = await context.connect({ start: false });
  using connection = await client.sandboxes.use(id).computer.console();
  using stack = new DisposableStack();
  const interrupts = stack.use(new Interrupts(io));
  if (io.terminal !== undefined) {
    stack.use(io.terminal.raw());
    io.stderr.write("dsec: Ctrl-P Ctrl-Q leaves\r\n");
  }
  const left = new AbortController();
  const keys = io.terminal === undefined ? undefined : new DetachKeys();
  const onData = (bytes: Uint8Array) => {
    const { send, detach } = keys?.take(bytes) ?? { send: bytes, detach: false };
    // What cannot be written shows in the end of the connection.
    if (send.byteLength > 0) connection.write(send).catch(() => undefined);
    if (detach) left.abort();
  };
  io.stdin.on("data", onData);
  stack.defer(() => {
    io.stdin.off("data", onData);
    io.stdin.pause();
  });
  const signal = AbortSignal.any([left.signal, interrupts.signal]);
  await Promise.race([show(connection, io.stdout), once(signal, "abort")]);
  return interrupts.left ?? 0;
}

async function show(connection: Connection, stdout: CliContext["io"]["stdout"]): Promise<void> {
  for await (const bytes of connection) if (!(await writeTo(stdout, bytes))) return;
}
