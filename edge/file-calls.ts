import type { CommandCall } from "#edge/command-calls.ts";
import type { FilesHost } from "#edge/files.ts";

/** Does one thing with the files of a sandbox, which does not count as idle meanwhile. */
export async function onFiles<T>(call: CommandCall, act: (host: FilesHost) => Promise<T>): Promise<T> {
  using _busy = call.driver.busy();
  return await act(await hostOf(call));
}

/** The same for what comes as a stream: it begins when the first item is asked for. */
export async function* streamFiles<T>(
  calling: () => CommandCall,
  act: (host: FilesHost) => AsyncGenerator<T, void, undefined>,
): AsyncGenerator<T, void, undefined> {
  const call = calling();
  using _busy = call.driver.busy();
  yield* act(await hostOf(call));
}

async function hostOf({ driver, signal }: CommandCall): Promise<FilesHost> {
  const link = await driver.agent("files", signal);
  return { link, number: driver.commands.nextNumber(), user: driver.spec.user, signal };
}
