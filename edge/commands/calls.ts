import { constants } from "node:os";
import type { Clock } from "#core/clock.ts";
import { SandboxError } from "#core/errors.ts";
import type { CommandId } from "#core/ids.ts";
import type { CommandResult, InputEvent, OutputChunk, OutputRead, RunWait, StdinWrite } from "#core/node.ts";
import type { CommandInfo, CommandSpec, TerminalSize } from "#core/sandbox.ts";
import { signalNumber } from "#edge/commands/signals.ts";
import { takeInput, writeStdin } from "#edge/commands/stdin.ts";
import type { SandboxDriver } from "#edge/driver.ts";
import { explain } from "#edge/explain.ts";
import { inlineOutput } from "#edge/output/inline.ts";
import { readLog } from "#edge/output/reader.ts";
import { validateCommand, validateTerminal } from "#edge/validate.ts";
import { waitAtMost } from "#edge/waiting/wait.ts";

/** A call of the node API about what runs in one sandbox. */
export interface CommandCall {
  readonly driver: SandboxDriver;
  readonly clock: Clock;
  readonly signal: AbortSignal;
}

/** See `Node.startCommand`. */
export async function startCommand(call: CommandCall, spec: CommandSpec, wait: RunWait): Promise<CommandResult> {
  validateCommand(spec);
  const { driver, signal } = call;
  using _busy = driver.busy();
  const link = await driver.agent("use", signal);
  const { live, ...command } = await driver.commands.start(spec, link).catch((error: unknown) => explain(error, call));
  using logs = driver.commands.openLogs(command.id);
  if (live !== undefined && wait.waitMs > 0) await waitAtMost(live.done, wait.waitMs, call);
  const info = live?.info ?? command;
  const ended = (live?.isDone ?? true) && wait.waitMs > 0;
  return { command: info, output: ended ? inlineOutput(logs.logs, wait.inlineBytes) : undefined };
}

/** See `Node.waitCommand`. */
export async function waitCommand(call: CommandCall, command: CommandId, waitMs: number): Promise<CommandInfo> {
  const { live, ...info } = call.driver.commands.find(command);
  if (live === undefined || live.isDone) return info;
  await waitAtMost(live.done, waitMs, call);
  return live.info;
}

/** See `Node.signalCommand`. */
export async function signalCommand(
  { driver, signal }: CommandCall,
  command: CommandId,
  signalName: string,
): Promise<void> {
  const number = signalNumber(signalName);
  using _busy = driver.busy();
  const { live } = driver.commands.find(command);
  if (live === undefined || live.status !== undefined) return;
  const link = await driver.agent("use", signal);
  if (number === constants.signals.SIGKILL) live.killedByCaller = true;
  link.signal(live.identity.number, number, "group");
}

/** See `Node.writeStdin`. */
export async function feedCommand(
  call: CommandCall,
  command: CommandId,
  input: StdinWrite,
): Promise<{ readonly offset: number }> {
  const { driver, signal } = call;
  using _busy = driver.busy();
  const { live } = driver.commands.find(command);
  const options = { signal, agent: () => driver.agent("use", signal) };
  return await writeStdin(live, input, options).catch((error: unknown) => explain(error, call));
}

/** See `Node.takeInput`. */
export async function* takeCommandInput(
  call: CommandCall,
  command: CommandId,
  writer: string,
): AsyncGenerator<InputEvent, void, undefined> {
  const { driver, signal } = call;
  const { live } = driver.commands.find(command);
  try {
    yield* takeInput(live, writer, { signal, agent: () => driver.agent("use", signal) });
  } catch (error) {
    await explain(error, call);
  }
}

/** See `Node.resizeTerminal`. */
export async function resizeTerminal(
  { driver, signal }: CommandCall,
  command: CommandId,
  size: TerminalSize,
): Promise<void> {
  validateTerminal(size);
  using _busy = driver.busy();
  const { live, terminal } = driver.commands.find(command);
  if (terminal === undefined) {
    throw new SandboxError("FailedPrecondition", "the command has no terminal", { hint: "start it with one" });
  }
  if (live === undefined || live.status !== undefined) return;
  (await driver.agent("use", signal)).resize(live.identity.number, size);
}

/** See `Node.readOutput`. The call begins when the first chunk is asked for. */
export function readOutput(
  begin: () => CommandCall,
  command: CommandId,
  read: OutputRead,
  signal: AbortSignal,
): AsyncGenerator<OutputChunk, void, undefined> {
  const open = () => {
    const { driver } = begin();
    using opened = new DisposableStack();
    opened.use(driver.busy());
    const logs = opened.use(driver.commands.openLogs(command));
    const held = opened.move();
    return { log: logs.logs[read.stream], over: () => logs.over(), [Symbol.dispose]: () => held.dispose() };
  };
  return readLog(open, read, signal);
}
