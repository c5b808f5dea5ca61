import type { Command, EndedCommand } from "#sdk";

/**
 * Passes on what a command writes as it comes, up to what it had written when it ended: a child that it leaves behind may hold its
 * output open for ever.
 */
export async function seeThrough(
  command: Command,
  onOutput: (bytes: Uint8Array) => void,
  signal: AbortSignal,
): Promise<EndedCommand> {
  const ended = new AbortController();
  const offsets = { stdout: 0, stderr: 0 };
  const copy = async (stream: "stdout" | "stderr", follow: boolean): Promise<void> => {
    const bound = follow ? AbortSignal.any([ended.signal, signal]) : signal;
    for await (const { offset, bytes } of command.output(stream, { follow, offset: offsets[stream], signal: bound })) {
      offsets[stream] = offset + bytes.byteLength;
      onOutput(bytes);
    }
  };
  // What they miss is read below.
  const following = [copy("stdout", true), copy("stderr", true)].map((copied) => copied.catch(() => undefined));
  const end = await command.wait({ signal });
  ended.abort();
  await Promise.all(following);
  for (const stream of ["stdout", "stderr"] as const) await copy(stream, false);
  return end;
}
