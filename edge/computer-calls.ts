import {
  COMPUTER_CHANNELS,
  type ComputerChannel,
  type ComputerStatus,
  type ComputerStream,
  type Computers,
  INPUT_LIMITS,
  type InputAction,
  type NodeComputers,
  POWER_ACTIONS,
  type PowerAction,
  type Screenshot,
  type ScreenshotOptions,
} from "#core/computers.ts";
import { abortable } from "#core/concurrency/abort.ts";
import { SandboxError } from "#core/errors.ts";
import type { SandboxId } from "#core/ids.ts";
import { differMore } from "#core/pixels.ts";
import type { PortPiece } from "#core/ports.ts";
import type { CommandCall } from "#edge/commands/calls.ts";
import { refuse } from "#edge/validate.ts";

/** Between two pictures of a screen that has to settle. */
const LOOK_MS = 100;

/** See `NodeComputers.computerStatus`. */
async function computerStatus(call: CommandCall): Promise<ComputerStatus> {
  return abortable((await computersOf(call)).status(call.driver.spec.id), call.signal);
}

/** See `NodeComputers.powerComputer`. */
async function powerComputer(call: CommandCall, action: PowerAction): Promise<void> {
  if (!POWER_ACTIONS.includes(action)) refuse("action", `must be one of ${POWER_ACTIONS.join(", ")}`);
  using _busy = call.driver.busy();
  await abortable((await computersOf(call)).power(call.driver.spec.id, action), call.signal);
}

/** See `NodeComputers.takeScreenshot`. */
async function takeScreenshot(call: CommandCall, options: ScreenshotOptions): Promise<Screenshot> {
  const { settledMs, waitMs, tolerance } = options;
  const { clock, driver, signal } = call;
  if (!(tolerance >= 0 && tolerance <= 1)) refuse("tolerance", "must be from 0 to 1");
  using _busy = driver.busy();
  const computers = await computersOf(call);
  const take = () => abortable(computers.screenshot(driver.spec.id), signal);
  if (settledMs === undefined) return { png: await take(), settled: true };
  const look = () => abortable(computers.look(driver.spec.id), signal);
  const endsAtMs = clock.now() + waitMs;
  // Against the first of those that are the same: else what changes slowly would pass for what does not.
  let first = await look();
  for (let sinceMs = clock.now(); clock.now() - sinceMs < settledMs; ) {
    if (clock.now() >= endsAtMs) return { png: await take(), settled: false };
    await pause(call, LOOK_MS);
    const next = await look();
    if (!differMore(first, next, tolerance)) continue;
    first = next;
    sinceMs = clock.now();
  }
  return { png: await take(), settled: true };
}

/** See `NodeComputers.sendInput`. */
async function sendInput(call: CommandCall, actions: readonly InputAction[]): Promise<void> {
  if (!Array.isArray(actions) || actions.length > INPUT_LIMITS.actions) {
    refuse("actions", `must be at most ${INPUT_LIMITS.actions}`);
  }
  using _busy = call.driver.busy();
  const signal = AbortSignal.any([call.signal, call.driver.leaving]);
  await (await computersOf(call)).input(call.driver.spec.id, actions, signal);
}

/** See `NodeComputers.openChannel`. */
async function* openChannel(
  call: CommandCall,
  channel: ComputerChannel,
  incoming: AsyncIterable<Uint8Array>,
): AsyncGenerator<PortPiece, void, undefined> {
  if (!COMPUTER_CHANNELS.includes(channel)) refuse("channel", `must be one of ${COMPUTER_CHANNELS.join(", ")}`);
  const { driver, signal } = call;
  using stream = await abortable((await computersOf(call)).channel(driver.spec.id, channel), signal);
  const end = () => stream[Symbol.dispose]();
  signal.addEventListener("abort", end, { once: true });
  try {
    yield "open";
    void feed(call, stream, incoming);
    for await (const bytes of stream.bytes) {
      yield bytes;
    }
    signal.throwIfAborted();
    yield "end";
  } finally {
    signal.removeEventListener("abort", end);
  }
}

/** Never rejects: what goes wrong ends the stream. What a person does keeps the sandbox from being idle; what is only shown does not. */
async function feed(call: CommandCall, stream: ComputerStream, incoming: AsyncIterable<Uint8Array>): Promise<void> {
  try {
    for await (const bytes of incoming) {
      call.driver.touch();
      await stream.write(bytes);
    }
  } catch {
    stream[Symbol.dispose]();
  }
}

/** Resumes a paused one first. */
async function computersOf({ driver, signal }: CommandCall): Promise<Computers> {
  const { backend } = driver.beside("use");
  if (backend.computers !== undefined) {
    await driver.awake("use", signal);
    return backend.computers;
  }
  throw new SandboxError(
    "FailedPrecondition",
    `sandboxes of the ${backend.kind} backend have no screen and no power button`,
    {
      hint: "create one of a vm-image: dsec image import --vm",
    },
  );
}

function pause({ clock, signal }: CommandCall, ms: number): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const timer = clock.after(ms, resolve);
  return abortable(promise, signal).finally(() => timer[Symbol.dispose]());
}

/** The calls of the node API about computers, for an edge. */
export abstract class ComputerCalls implements NodeComputers {
  /** The sandbox of a call. Throws `NotFound`. */
  protected abstract calling(id: SandboxId, signal: AbortSignal): CommandCall;

  async computerStatus(id: SandboxId, signal: AbortSignal): Promise<ComputerStatus> {
    return computerStatus(this.calling(id, signal));
  }

  async powerComputer(id: SandboxId, action: PowerAction, signal: AbortSignal): Promise<void> {
    await powerComputer(this.calling(id, signal), action);
  }

  async takeScreenshot(id: SandboxId, options: ScreenshotOptions, signal: AbortSignal): Promise<Screenshot> {
    return takeScreenshot(this.calling(id, signal), options);
  }

  async sendInput(id: SandboxId, actions: readonly InputAction[], signal: AbortSignal): Promise<void> {
    await sendInput(this.calling(id, signal), actions);
  }

  async *openChannel(
    id: SandboxId,
    channel: ComputerChannel,
    incoming: AsyncIterable<Uint8Array>,
    signal: AbortSignal,
  ): AsyncGenerator<PortPiece, void, undefined> {
    yield* openChannel(this.calling(id, signal), channel, incoming);
  }
}
