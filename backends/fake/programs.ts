import { encodeEntry } from "#core/entries.ts";
import { SandboxError } from "#core/errors.ts";
import type { TaskAction, TaskSpec } from "#core/guest.ts";
import { Errno } from "./files.ts";
import type { FakeSandbox } from "./host.ts";
import type { Program, ProgramIo } from "./task.ts";

/** The program of a task. Throws `CommandNotFound` for one that the fake guest does not have. */
export function programOf(task: TaskSpec, sandbox: FakeSandbox): Program {
  const { action } = task;
  if (task.user === "nobody-here") throw new SandboxError("InvalidArgument", "the sandbox has no such user");
  if (action.type === "connect") return echoServer(action.port);
  if (action.type === "listeners") return (io) => tellListeners(action.port, io);
  if (action.type === "session" || action.type === "line") {
    throw new SandboxError("FailedPrecondition", "the fake guest has no sessions");
  }
  if (action.type !== "exec") return (io) => actOnFile(action, io, sandbox);
  if (action.terminal !== undefined) throw new SandboxError("FailedPrecondition", "the fake guest has no terminals");
  const [name = "", ...args] = action.argv.map((argument) => Buffer.from(argument).toString());
  const program = PROGRAMS[name];
  if (program === undefined) throw new SandboxError("CommandNotFound", `the sandbox has no program ${name}`);
  return (io) => program(io, args, task);
}

async function cat(io: ProgramIo): Promise<number> {
  for (let bytes = await io.read(); bytes !== undefined; bytes = await io.read()) await io.write("stdout", bytes);
  return 0;
}

/** What listens in every fake sandbox: sends back what comes. */
const ECHO_PORT = 7;

function echoServer(port: number): Program {
  if (port !== ECHO_PORT) throw new SandboxError("PortFailed", "nothing in the sandbox takes connections at the port");
  return cat;
}

async function tellListeners(port: number | undefined, io: ProgramIo): Promise<number> {
  if (port === undefined)
    await io.write("stdout", Uint8Array.from([ECHO_PORT, 0, 4, 0, 127, 0, 0, 1, ...Array(12).fill(0)]));
  else if (port !== ECHO_PORT) await io.sleep(Number.POSITIVE_INFINITY);
  return 0;
}

/** What the fake guest can run; `docs/contributing/fake-backend.md` lists them for people. */
const PROGRAMS: Readonly<Record<string, (io: ProgramIo, args: readonly string[], task: TaskSpec) => Promise<number>>> =
  {
    true: async () => 0,
    false: async () => 1,
    exit: async (_, [code]) => Number(code),
    async echo(io, args) {
      await io.write("stdout", Buffer.from(`${args.join(" ")}\n`));
      return 0;
    },
    async complain(io, args) {
      await io.write("stderr", Buffer.from(`${args.join(" ")}\n`));
      return 1;
    },
    async env(io, _, task) {
      const lines = Object.entries(task.env).map(([name, value]) => `${name}=${value}\n`);
      await io.write("stdout", Buffer.from(lines.join("")));
      return 0;
    },
    cat,
    async sleep(io, [seconds]) {
      await io.sleep(Number(seconds) * 1000);
      return 0;
    },
    /** Bytes that tell their offset: the low eight bits of every 251st. */
    async yes(io, [count, piece = "65536"]) {
      for (let at = 0; at < Number(count); at += Number(piece)) {
        await io.write("stdout", pattern(at, Math.min(Number(piece), Number(count) - at)));
      }
      return 0;
    },
    die: async (io, [signal = "SIGKILL"]) => io.die(signal),
    hog: async (io) => io.exhaustMemory(),
    /** Leaves a child that writes when input ends, holding stdout until then. */
    async daemon(io, [text = ""]) {
      const work = async () => {
        while ((await io.read()) !== undefined);
        await io.write("stdout", Buffer.from(text));
      };
      io.background(work());
      return 0;
    },
  };

/** What `yes` writes at `offset`. */
export function pattern(offset: number, length: number): Uint8Array {
  const bytes = new Uint8Array(length);
  for (let at = 0; at < length; at += 1) bytes[at] = (offset + at) % 251;
  return bytes;
}

type FileAction = Exclude<TaskAction, { readonly type: "exec" | "connect" | "listeners" | "session" | "line" }>;

async function actOnFile(action: FileAction, io: ProgramIo, { files }: FakeSandbox): Promise<number> {
  switch (action.type) {
    case "read": {
      const bytes = files.read(action.path);
      const end = action.length === undefined ? bytes.length : action.offset + action.length;
      await io.write("stdout", bytes.subarray(action.offset, end));
      return 0;
    }
    case "write": {
      files.checkWritable(action.path, action.parents);
      const parts: Uint8Array[] = [];
      for (let bytes = await io.read(); bytes !== undefined; bytes = await io.read()) parts.push(bytes);
      files.write(action.path, { ...action, bytes: Buffer.concat(parts) });
      return 0;
    }
    case "list":
      for (const entry of files.list(action.path)) await io.write("stdout", encodeEntry(entry));
      return 0;
    case "stat":
      await io.write("stdout", encodeEntry(files.stat(action.path)));
      return 0;
    case "mkdir":
      files.makeDirectory(action.path, action);
      return 0;
    case "remove":
      if (action.path.length <= 1) throw new Errno("EBUSY");
      files.remove(action.path, action.recursive);
      return 0;
    case "chmod":
      files.changeMode(action.path, action.mode);
      return 0;
    case "move":
      files.move(action.path, action.target, action);
      return 0;
    case "cell":
    case "chown":
    case "fork-server":
    case "read-tree":
    case "symlink":
    case "watch":
    case "write-tree":
      throw new Errno("EPERM");
  }
}
