import type { ComputerChannel, InputAction, PowerAction } from "#core/computers.ts";
import { join } from "#core/concurrency/bulk.ts";
import { SandboxError } from "#core/errors.ts";
import type { FunctionCall } from "#core/functions.ts";
import { parseCommandId, parseInvocationId, parseSandboxId } from "#core/ids.ts";
import type { Node, StdinWrite } from "#core/node.ts";
import {
  decodeBytes,
  encodeBulk,
  encodeBytes,
  encodeChunks,
  encodeEntries,
  encodeFile,
  encodeInfo,
  encodePort,
  encodeResult,
  encodeValue,
  NODE_METHODS,
  type NodeMethod,
} from "#core/node-wire.ts";
import { unpack } from "#core/pack.ts";
import type { Payload } from "#core/rpc/frames.ts";
import { type RpcOptions, RpcPeer } from "#core/rpc/peer.ts";
import type { IncomingCall } from "#core/rpc/serving.ts";
import type { FrameTransport } from "#core/rpc/transport.ts";

/** Answers the calls of one connection with a node. The peer's end of it is a `RemoteNode`. */
export function serveNode(node: Node, transport: FrameTransport, options: Omit<RpcOptions, "serve"> = {}): RpcPeer {
  return new RpcPeer(transport, { ...options, serve: (call) => dispatch(node, call) });
}

/** One argument of a call, not yet looked at. The edge checks every value it acts on; ids are checked here. */
type Arguments = readonly unknown[];
type Answer = Promise<Payload> | AsyncIterable<Payload>;
type Handler = (node: Node, args: Arguments, call: IncomingCall) => Answer;

function dispatch(node: Node, call: IncomingCall): Answer {
  const method = call.method;
  if (!Object.hasOwn(NODE_METHODS, method)) {
    throw new SandboxError("InvalidArgument", `the node API has no method ${JSON.stringify(method)}`, {
      hint: "the control plane and the node are of different releases",
    });
  }
  const args = unpack(call.payload.head);
  if (!Array.isArray(args)) throw new SandboxError("InvalidArgument", "a call's arguments are not a list");
  return HANDLERS[method as NodeMethod](node, args, call);
}

/** A method that `Node` has and this table lacks does not compile. */
const HANDLERS: Readonly<Record<NodeMethod, Handler>> = {
  info: (node, _, { signal }) => value(node.info(signal)),
  create: (node, args, { signal }) => value(node.create(fields(args[0]), signal)),
  inspect: (node, args, { signal }) => value(node.inspect(sandbox(args), signal)),
  list: (node, args, { signal }) => value(node.list(fields(args[0]), signal)),
  extend: (node, args, { signal }) => value(node.extend(sandbox(args), fields(args[1]), signal)),
  pause: (node, args, { signal }) => value(node.pause(sandbox(args), signal)),
  resume: (node, args, { signal }) => value(node.resume(sandbox(args), signal)),
  destroy: (node, args, { signal }) => value(node.destroy(sandbox(args), signal)),
  usage: (node, args, { signal }) => values(node.usage(sandbox(args), fields(args[1]), signal)),
  startCommand: async (node, args, { signal }) =>
    encodeResult(await node.startCommand(sandbox(args), fields(args[1]), fields(args[2]), signal)),
  openSession: (node, args, { signal }) => value(node.openSession(sandbox(args), fields(args[1]), signal)),
  listSessions: (node, args, { signal }) => value(node.listSessions(sandbox(args), signal)),
  inspectSession: (node, args, { signal }) => value(node.inspectSession(sandbox(args), String(args[1]), signal)),
  removeSession: (node, args, { signal }) => value(node.removeSession(sandbox(args), String(args[1]), signal)),
  listCommands: (node, args, { signal }) => value(node.listCommands(sandbox(args), fields(args[1]), signal)),
  waitCommand: (node, args, { signal }) =>
    value(node.waitCommand(sandbox(args), command(args), Number(args[2]), signal)),
  signalCommand: (node, args, { signal }) =>
    value(node.signalCommand(sandbox(args), command(args), String(args[2]), signal)),
  writeStdin: (node, args, { signal, upload }) => {
    const input = { ...fields<Omit<StdinWrite, "bytes">>(args[2]), bytes: decodeBytes(upload) };
    return value(node.writeStdin(sandbox(args), command(args), input, signal));
  },
  takeInput: (node, args, { signal }) => values(node.takeInput(sandbox(args), command(args), String(args[2]), signal)),
  resizeTerminal: (node, args, { signal }) =>
    value(node.resizeTerminal(sandbox(args), command(args), fields(args[2]), signal)),
  readOutput: (node, args, { signal }) =>
    encodeChunks(node.readOutput(sandbox(args), command(args), fields(args[2]), signal)),
  readFile: (node, args, { signal }) => encodeFile(node.readFile(sandbox(args), fields(args[1]), signal)),
  writeFile: (node, args, { signal, upload }) =>
    value(node.writeFile(sandbox(args), fields(args[1]), decodeBytes(upload), signal)),
  listFiles: (node, args, { signal }) => encodeEntries(node.listFiles(sandbox(args), fields(args[1]), signal)),
  stat: async (node, args, { signal }) => encodeInfo(await node.stat(sandbox(args), fields(args[1]), signal)),
  readTree: (node, args, { signal }) => encodeBytes(node.readTree(sandbox(args), fields(args[1]), signal)),
  writeTree: (node, args, { signal, upload }) =>
    value(node.writeTree(sandbox(args), fields(args[1]), decodeBytes(upload), signal)),
  watchFiles: (node, args, { signal }) => encodeBytes(node.watchFiles(sandbox(args), fields(args[1]), signal)),
  changeFile: (node, args, { signal }) => value(node.changeFile(sandbox(args), fields(args[1]), signal)),
  openPort: (node, args, { signal, upload }) =>
    encodePort(node.openPort(sandbox(args), Number(args[1]), decodeBytes(upload), signal)),
  waitForPort: (node, args, { signal }) =>
    value(node.waitForPort(sandbox(args), Number(args[1]), Number(args[2]), signal)),
  listListeners: (node, args, { signal }) => value(node.listListeners(sandbox(args), signal)),
  invoke: (node, args, { signal, upload }) =>
    heldBulk(takeBulk<FunctionCall>(args[0], decodeBytes(upload)).then((call) => node.invoke(call, signal))),
  packDiff: (node, args, { signal }) => value(node.packDiff(sandbox(args), fields(args[1]), signal)),
  fork: (node, args, { signal }) => value(node.fork(sandbox(args), fields(args[1]), fields(args[2]), signal)),
  startInvocation: (node, args, { signal, upload }) =>
    value(takeBulk<FunctionCall>(args[0], decodeBytes(upload)).then((call) => node.startInvocation(call, signal))),
  waitInvocation: (node, args, { signal }) =>
    encodeBulk(
      node.waitInvocation(parseInvocationId(String(args[0])), fields(args[1]), signal).then((result) => ({ result })),
    ),
  dropInvocation: (node, args, { signal }) =>
    value(node.dropInvocation(parseInvocationId(String(args[0])), String(args[1]), signal)),
  computerStatus: (node, args, { signal }) => value(node.computerStatus(sandbox(args), signal)),
  powerComputer: (node, args, { signal }) =>
    value(node.powerComputer(sandbox(args), String(args[1]) as PowerAction, signal)),
  takeScreenshot: (node, args, { signal }) => encodeBulk(node.takeScreenshot(sandbox(args), fields(args[1]), signal)),
  sendInput: (node, args, { signal }) =>
    value(node.sendInput(sandbox(args), fields<readonly InputAction[]>(args[1]), signal)),
  openChannel: (node, args, { signal, upload }) => {
    const channel = String(args[1]) as ComputerChannel;
    return encodePort(node.openChannel(sandbox(args), channel, decodeBytes(upload), signal));
  },
  resources: (node, _, { signal }) => value(node.resources(signal)),
};

/** Files and inputs of one call, which an edge holds in memory while it waits for its turn. */
const BULK_LIMIT_BYTES = 256 * 1024 * 1024;

async function takeBulk<T>(value: unknown, upload: AsyncIterable<Uint8Array>): Promise<T> {
  const pieces: Uint8Array[] = [];
  let size = 0;
  for await (const piece of upload) {
    // A copy: the next one may lie in the same buffer.
    pieces.push(Buffer.from(piece));
    size += piece.length;
    if (size > BULK_LIMIT_BYTES) throw new SandboxError("TooLarge", `a call of more than ${BULK_LIMIT_BYTES} bytes`);
  }
  return join(value, Buffer.concat(pieces)) as T;
}

/** What is held until its reader has taken it. */
async function* heldBulk(result: Promise<Disposable>): AsyncGenerator<Payload, void, undefined> {
  using held = await result;
  yield* encodeBulk(Promise.resolve(held));
}

async function value(result: Promise<unknown>): Promise<Payload> {
  return encodeValue(await result);
}

async function* values(results: AsyncIterable<unknown>): AsyncGenerator<Payload, void, undefined> {
  for await (const result of results) yield encodeValue(result);
}

function sandbox(args: Arguments) {
  return parseSandboxId(String(args[0]));
}

function command(args: Arguments) {
  return parseCommandId(String(args[1]));
}

/** An argument that must be an object; its fields are the callee's to check. */
function fields<T extends object>(argument: unknown): T {
  if (typeof argument === "object" && argument !== null) return argument as T;
  throw new SandboxError("InvalidArgument", "an argument of the call is not an object");
}
