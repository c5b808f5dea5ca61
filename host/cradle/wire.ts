import { SandboxError } from "#core/errors.ts";

/** What one sandbox is made of. All paths are absolute paths of the host. */
export interface CradleRequest {
  readonly id: string;
  /** First of the sandbox's 65,536 host ids; the host's own first 65,536 are refused. */
  readonly uidBase: number;
  /** Read-only EROFS trees that are mounted on the host, lowest first; at least one. */
  readonly layers: readonly string[];
  /** Exists, has the plain ids 0 to 65,535 and lies on one mount with `workDir`. */
  readonly upperDir: string;
  readonly workDir: string;
  readonly hostname: string;
  readonly hosts: string;
  readonly resolvConf: string;
  /** Where the agent listens. The directory exists, the socket does not. */
  readonly socketPath: string;
  /** Follows `dsec-agent --cgroups=N`. */
  readonly agentArgs: readonly string[];
  /** Made in this order, removed in reverse when the create fails. */
  readonly cgroups: readonly CradleCgroup[];
  /** Where agents live, one directory a hierarchy. The cradle moves there itself, once. */
  readonly agentCgroups?: readonly string[];
  readonly shmBytes: number;
}

/** What a blank is made of: the part of a request that is known before anybody asks. */
export type BlankRequest = Pick<CradleRequest, "uidBase" | "socketPath" | "agentCgroups" | "shmBytes">;

/** A cgroup to make. */
export interface CradleCgroup {
  readonly dir: string;
  readonly writes: readonly (readonly [file: string, value: string])[];
  /** The agent gets its `tasks` (v1) or `cgroup.procs` (v2), open for writing, from descriptor 4 on. */
  readonly handOver: boolean;
  /** The sandbox's root may make cgroups in it: the agent gets the directories behind all doors. */
  readonly delegate?: boolean;
}

/** What the cradle says. */
export type CradleReply =
  | { readonly type: "hello"; readonly protocol: number; readonly overlayMode: string }
  | { readonly type: "created"; readonly tag: number; readonly pid: number }
  | { readonly type: "failed"; readonly tag: number; readonly errno: number; readonly stage: string }
  | { readonly type: "exit"; readonly pid: number; readonly status: number };

/** The version that both sides must speak. */
export const PROTOCOL_VERSION = 2;

const LENGTH_BYTES = 4;
const HEADER_BYTES = 8;
/** Longest body of a frame, either way. */
const MAX_BODY_BYTES = 65_536;
const MESSAGE = { create: 1, cancel: 2, blank: 3, drop: 4, hello: 64, created: 65, failed: 66, exit: 67 } as const;
const FIELD = {
  id: 1,
  uidBase: 2,
  layer: 3,
  upperDir: 4,
  workDir: 5,
  hostname: 6,
  hosts: 7,
  resolvConf: 8,
  socketPath: 9,
  argument: 10,
  cgroup: 11,
  cgroupWrite: 12,
  cgroupHandOver: 13,
  agentCgroup: 14,
  shmBytes: 15,
  cgroupDelegate: 16,
} as const;

/** A CREATE frame. Throws as `createBody` does. */
export function encodeCreate(tag: number, request: CradleRequest): Buffer {
  return frame(MESSAGE.create, tag, createBody(request));
}

/** What a CREATE says. Throws `InvalidArgument` for text with a NUL in it and `TooLarge` for more than a frame holds. */
export function createBody(request: CradleRequest): Buffer {
  const texts = (field: number, values: readonly string[]) => values.map((value) => text(field, value));
  const body = Buffer.concat([
    text(FIELD.id, request.id),
    ...texts(FIELD.layer, request.layers),
    text(FIELD.upperDir, request.upperDir),
    text(FIELD.workDir, request.workDir),
    text(FIELD.hostname, request.hostname),
    text(FIELD.hosts, request.hosts),
    text(FIELD.resolvConf, request.resolvConf),
    ...texts(FIELD.argument, request.agentArgs),
    ...request.cgroups.flatMap(cgroupFields),
    ...blankFields(request),
  ]);
  if (body.length > MAX_BODY_BYTES) throw tooLarge(body.length);
  return body;
}

/** A BLANK frame. Throws as `encodeCreate` does. */
export function encodeBlank(tag: number, request: BlankRequest): Buffer {
  return frame(MESSAGE.blank, tag, Buffer.concat(blankFields(request)));
}

/** Ends the blank of these ids. It has no answer. */
export function encodeDrop(uidBase: number): Buffer {
  return frame(MESSAGE.drop, uidBase, Buffer.alloc(0));
}

/** Takes the create of this tag back; its answer comes all the same. */
export function encodeCancel(tag: number): Buffer {
  return frame(MESSAGE.cancel, tag, Buffer.alloc(0));
}

/** Splits a byte stream into replies. Throws a plain `Error` on bytes that are none: the cradle is broken then. */
export class ReplyReader {
  #rest: Buffer = Buffer.alloc(0);

  push(bytes: Buffer): readonly CradleReply[] {
    const replies: CradleReply[] = [];
    let rest = this.#rest.length === 0 ? bytes : Buffer.concat([this.#rest, bytes]);
    for (;;) {
      const whole = wholeFrame(rest);
      if (whole === undefined) break;
      replies.push(decodeReply(whole));
      rest = rest.subarray(LENGTH_BYTES + whole.length);
    }
    this.#rest = rest;
    return replies;
  }
}

function wholeFrame(bytes: Buffer): Buffer | undefined {
  if (bytes.length < LENGTH_BYTES) return undefined;
  const length = bytes.readUInt32LE(0);
  if (length < HEADER_BYTES + 4 || length > HEADER_BYTES + MAX_BODY_BYTES) {
    throw new Error(`the cradle sent a frame of ${length} bytes`);
  }
  return bytes.length < LENGTH_BYTES + length ? undefined : bytes.subarray(LENGTH_BYTES, LENGTH_BYTES + length);
}

function decodeReply(frame: Buffer): CradleReply {
  const type = frame.readUInt16LE(0);
  const tag = frame.readUInt32LE(4);
  const number = frame.readUInt32LE(8);
  const words = frame.toString("utf8", 12);
  switch (type) {
    case MESSAGE.hello:
      return { type: "hello", protocol: number, overlayMode: words };
    case MESSAGE.created:
      return { type: "created", tag, pid: number };
    case MESSAGE.failed:
      return { type: "failed", tag, errno: number, stage: words };
    case MESSAGE.exit:
      return { type: "exit", pid: tag, status: number };
    default:
      throw new Error(`the cradle sent a message of type ${type}`);
  }
}

function blankFields(request: BlankRequest): readonly Buffer[] {
  return [
    uint32(FIELD.uidBase, request.uidBase),
    text(FIELD.socketPath, request.socketPath),
    ...(request.agentCgroups ?? []).map((dir) => text(FIELD.agentCgroup, dir)),
    uint64(FIELD.shmBytes, request.shmBytes),
  ];
}

function cgroupFields(cgroup: CradleCgroup): readonly Buffer[] {
  return [
    text(FIELD.cgroup, cgroup.dir),
    ...cgroup.writes.map(([file, value]) =>
      field(FIELD.cgroupWrite, Buffer.concat([terminated(file), terminated(value)])),
    ),
    ...(cgroup.handOver ? [field(FIELD.cgroupHandOver, Buffer.alloc(0))] : []),
    ...(cgroup.delegate === true ? [field(FIELD.cgroupDelegate, Buffer.alloc(0))] : []),
  ];
}

function frame(type: number, tag: number, body: Buffer): Buffer {
  const header = Buffer.alloc(LENGTH_BYTES + HEADER_BYTES);
  header.writeUInt32LE(HEADER_BYTES + body.length, 0);
  header.writeUInt16LE(type, 4);
  header.writeUInt32LE(tag, 8);
  return Buffer.concat([header, body]);
}

function field(number: number, bytes: Buffer): Buffer {
  const header = Buffer.alloc(4);
  if (bytes.length > 0xffff) throw tooLarge(bytes.length);
  header.writeUInt16LE(number, 0);
  header.writeUInt16LE(bytes.length, 2);
  return Buffer.concat([header, bytes]);
}

function text(number: number, value: string): Buffer {
  return field(number, terminated(value));
}

function terminated(value: string): Buffer {
  if (value.includes("\0")) {
    throw new SandboxError("InvalidArgument", `${JSON.stringify(value.slice(0, 80))} holds a NUL`);
  }
  return Buffer.from(`${value}\0`);
}

function uint32(number: number, value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value, 0);
  return field(number, bytes);
}

function uint64(number: number, value: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(value), 0);
  return field(number, bytes);
}

function tooLarge(bytes: number): SandboxError {
  return new SandboxError("TooLarge", `a request of ${bytes} bytes does not fit into ${MAX_BODY_BYTES}`, {
    hint: "use fewer layers or shorter files",
  });
}
