import { SandboxError } from "#core/errors.ts";
import type { TaskAction, TaskSpec } from "#core/guest.ts";
import type { TerminalSize } from "#core/sandbox.ts";
import { FRAME, FRAME_HEADER_BYTES, newFrame, putOffset, START_LIMIT_BYTES } from "./frames.ts";

/** The tags of a START body, as in guest/agent/start.h. */
const TAG = {
  action: 1,
  user: 2,
  cwd: 3,
  env: 4,
  stdin: 5,
  timeLimit: 6,
  argv: 7,
  path: 8,
  offset: 9,
  length: 10,
  mode: 11,
  flag: 12,
  terminal: 13,
  target: 16,
  owner: 17,
  depth: 18,
  keep: 19,
  port: 15,
  session: 14,
  line: 28,
} as const;

const ACTION_CODES: Readonly<Record<TaskAction["type"], number>> = {
  exec: 1,
  read: 2,
  write: 3,
  list: 4,
  stat: 5,
  mkdir: 6,
  remove: 7,
  chmod: 8,
  chown: 9,
  symlink: 10,
  move: 11,
  connect: 20,
  listeners: 21,
  session: 16,
  line: 17,
  "read-tree": 12,
  "write-tree": 13,
  cell: 24,
  "fork-server": 25,
  watch: 14,
};

/** Of a tag: u16 tag, u16 zero, u32 length. */
const TAG_BYTES = 8;
/** The kernel's own limits: MAX_ARG_STRLEN for one argument or variable, PATH_MAX for a path. */
const ARGUMENT_LIMIT_BYTES = 128 * 1024 - 1;
const PATH_LIMIT_BYTES = 4095;
/** Half of what a START holds. */
const LINE_LIMIT_BYTES = 1024 * 1024;

/** The START frame of a task. Throws `InvalidArgument` for what no process could be given. */
export function encodeStart(task: number, spec: TaskSpec): Buffer {
  const fields = [...commonFields(spec), ...actionFields(spec.action)];
  const size = fields.reduce((sum, field) => sum + TAG_BYTES + field.value.length, 0);
  if (size > START_LIMIT_BYTES) {
    throw new SandboxError("InvalidArgument", `a command with ${size} bytes of arguments and environment`, {
      hint: `at most ${START_LIMIT_BYTES} bytes fit: pass the data in a file or on stdin`,
    });
  }
  const frame = newFrame(FRAME.start, 0, task, size);
  let at = FRAME_HEADER_BYTES;
  for (const { tag, value } of fields) {
    frame.writeUInt16LE(tag, at);
    frame.writeUInt16LE(0, at + 2);
    frame.writeUInt32LE(value.length, at + 4);
    frame.set(value, at + TAG_BYTES);
    at += TAG_BYTES + value.length;
  }
  return frame;
}

interface Field {
  readonly tag: number;
  readonly value: Uint8Array;
}

function commonFields(spec: TaskSpec): Field[] {
  const fields: Field[] = [
    { tag: TAG.action, value: byte(ACTION_CODES[spec.action.type]) },
    { tag: TAG.user, value: text("user", Buffer.from(spec.user), PATH_LIMIT_BYTES) },
    { tag: TAG.cwd, value: text("working directory", Buffer.from(spec.cwd), PATH_LIMIT_BYTES) },
    { tag: TAG.stdin, value: byte(spec.stdin === "pipe" ? 1 : 0) },
  ];
  const variables = Object.entries(spec.env);
  if (variables.length > 0) fields.push({ tag: TAG.env, value: Buffer.concat(variables.map(variable)) });
  if (spec.timeLimitMs !== undefined) fields.push({ tag: TAG.timeLimit, value: timeLimit(spec.timeLimitMs) });
  return fields;
}

function actionFields(action: TaskAction): Field[] {
  if (action.type === "exec") {
    const argv = argvField(action.argv);
    return action.terminal === undefined ? [argv] : [argv, { tag: TAG.terminal, value: encodeSize(action.terminal) }];
  }
  if (action.type === "connect") return [{ tag: TAG.port, value: port(action.port) }];
  if (action.type === "listeners") {
    return action.port === undefined ? [] : [{ tag: TAG.port, value: port(action.port) }];
  }
  if (action.type === "session") return [];
  if (action.type === "fork-server") return [argvField(action.argv)];
  if (action.type === "cell") return cellFields(action);
  if (action.type === "line") return lineFields(action);
  return [{ tag: TAG.path, value: path(action.path) }, ...fileFields(action)];
}

function argvField(argv: readonly Uint8Array[]): Field {
  if (argv[0] === undefined || argv[0].length === 0) {
    throw new SandboxError("InvalidArgument", "a command without a program", { hint: "give at least argv[0]" });
  }
  const texts = argv.map((argument) => text("argument", argument, ARGUMENT_LIMIT_BYTES));
  return { tag: TAG.argv, value: Buffer.concat(texts) };
}

function cellFields({ program, calls, spaceBytes }: Extract<TaskAction, { readonly type: "cell" }>): Field[] {
  const fields = [
    { tag: TAG.length, value: amount("space", spaceBytes) },
    { tag: TAG.offset, value: amount("calls", calls) },
  ];
  if (program === "cold") return fields;
  return program === "forked" ? [...fields, flag(true)] : [...fields, argvField(program.argv)];
}

function lineFields(action: Extract<TaskAction, { readonly type: "line" }>): Field[] {
  const session = Buffer.alloc(4);
  session.writeUInt32LE(action.session);
  return [
    { tag: TAG.session, value: session },
    { tag: TAG.line, value: text("line", action.text, LINE_LIMIT_BYTES) },
  ];
}

type FileAction = Exclude<
  TaskAction,
  { readonly type: "exec" | "connect" | "listeners" | "session" | "line" | "cell" | "fork-server" }
>;

function fileFields(action: FileAction): Field[] {
  switch (action.type) {
    case "read": {
      const offset = { tag: TAG.offset, value: amount("offset", action.offset) };
      return action.length === undefined
        ? [offset]
        : [offset, { tag: TAG.length, value: amount("length", action.length) }];
    }
    case "write":
    case "mkdir":
      return [{ tag: TAG.mode, value: mode(action.mode) }, flag(action.parents)];
    case "list":
      return [{ tag: TAG.depth, value: word(action.depth) }, flag(!action.hidden)];
    case "remove":
    case "watch":
      return [flag(action.recursive)];
    case "chmod":
      return [{ tag: TAG.mode, value: mode(action.mode) }];
    case "chown":
      return [{ tag: TAG.owner, value: text("owner", Buffer.from(action.owner), PATH_LIMIT_BYTES) }];
    case "symlink":
      return [{ tag: TAG.target, value: text("target", action.target, PATH_LIMIT_BYTES) }, flag(action.parents)];
    case "move":
      return [
        { tag: TAG.target, value: path(action.target) },
        flag(action.parents),
        { tag: TAG.keep, value: byte(action.replace ? 0 : 1) },
      ];
    case "write-tree":
      return [flag(action.owners)];
    case "stat":
    case "read-tree":
      return [];
  }
}

function flag(set: boolean): Field {
  return { tag: TAG.flag, value: byte(set ? 1 : 0) };
}

/** Rows and columns as the agent takes them. Throws `InvalidArgument` for a size that no terminal has. */
export function encodeSize({ rows, cols }: TerminalSize): Buffer {
  const bytes = Buffer.alloc(4);
  for (const [at, count] of [rows, cols].entries()) {
    if (!Number.isInteger(count) || count < 1 || count > 0xffff) {
      throw new SandboxError("InvalidArgument", `a terminal of ${rows} rows and ${cols} columns`, {
        hint: "both are whole numbers from 1 to 65535",
      });
    }
    bytes.writeUInt16LE(count, 2 * at);
  }
  return bytes;
}

function byte(value: number): Uint8Array {
  return Uint8Array.of(value);
}

/** Bytes with the NUL that ends them for the kernel, so that they must have no other. */
function text(what: string, bytes: Uint8Array, limit: number): Uint8Array {
  if (bytes.includes(0)) throw new SandboxError("InvalidArgument", `a NUL byte in the ${what}`);
  if (bytes.length > limit) {
    throw new SandboxError("InvalidArgument", `the ${what} has ${bytes.length} bytes, more than ${limit}`, {
      hint: "pass the data in a file or on stdin",
    });
  }
  const ended = new Uint8Array(bytes.length + 1);
  ended.set(bytes);
  return ended;
}

function variable([name, value]: [string, string]): Uint8Array {
  if (name === "" || name.includes("=")) {
    throw new SandboxError("InvalidArgument", `environment variable ${JSON.stringify(name)} has no valid name`);
  }
  return text(`environment variable ${name}`, Buffer.from(`${name}=${value}`), ARGUMENT_LIMIT_BYTES);
}

function path(bytes: Uint8Array): Uint8Array {
  if (bytes[0] !== "/".charCodeAt(0)) {
    throw new SandboxError("InvalidArgument", "a path that is not absolute", { hint: "begin it with /" });
  }
  return text("path", bytes, PATH_LIMIT_BYTES);
}

function amount(what: string, value: number): Uint8Array {
  if (!Number.isSafeInteger(value) || value < 0) {
    throw new SandboxError("InvalidArgument", `the ${what} ${value} is not a whole number of bytes`);
  }
  const bytes = Buffer.alloc(8);
  putOffset(bytes, 0, value);
  return bytes;
}

function port(value: number): Uint8Array {
  if (!Number.isInteger(value) || value < 1 || value > 65_535) {
    throw new SandboxError("InvalidArgument", `the port ${value} is not a number from 1 to 65535`);
  }
  return Uint8Array.of(value & 0xff, value >> 8);
}

function mode(value: number): Uint8Array {
  if (!Number.isInteger(value) || value < 0 || value > 0o7777) {
    throw new SandboxError("InvalidArgument", `the mode ${value} is not a number from 0 to 0o7777`);
  }
  return word(value);
}

function word(value: number): Uint8Array {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
}

function timeLimit(limitMs: number): Uint8Array {
  if (!(limitMs > 0)) {
    throw new SandboxError("InvalidArgument", `the time limit ${limitMs} ms is not above zero`);
  }
  const bytes = Buffer.alloc(8);
  // The agent counts whole milliseconds, and zero would mean none.
  putOffset(bytes, 0, Math.min(Math.max(1, Math.round(limitMs)), Number.MAX_SAFE_INTEGER));
  return bytes;
}
