import type { ExitStatus, OutputStream, TerminalSize } from "#core/sandbox.ts";

/**
 * The agent inside a sandbox, as the edge sees it: the same for containers and virtual machines.
 *
 * Everything the agent runs is a *task*: a program, or one file operation carried out by a short-lived process of the
 * agent with the rights of the sandbox. A task has a number chosen by the edge, an input stream, two output streams and an
 * end. It lives in the agent, not in the connection: it goes on when the connection breaks, its unacknowledged output is
 * kept, and a new link picks it up by number and offset. Nothing the edge has not acknowledged is ever dropped, and the
 * agent buffers no more than its window: a reader that stops stalls the writer, as a pipe does.
 */
export interface GuestLink {
  readonly hello: GuestHello;
  /** Resolves when the connection is gone, however it went. */
  readonly closed: Promise<void>;
  /**
   * Starts a task. Rejects with `CommandNotFound`, `CommandNotExecutable`, `InvalidArgument` (user, cwd), `SandboxLimit`, `PortFailed`. The
   * detail `stage` says what was refused: the program for `exec` and `interpreter`, what they are called for `user` and `cwd`.
   */
  start(number: number, task: TaskSpec, sink: TaskSink): Promise<{ readonly pid: number }>;
  /** Every task the agent knows, ended ones included until they are forgotten. */
  list(): Promise<readonly TaskReport[]>;
  /** Takes over the output of a task that `list` named, from what `sink` has already. */
  attach(number: number, from: Readonly<Record<OutputStream, number>>, sink: TaskSink): void;
  /**
   * Resolves when the agent has room for more. `offset` makes a repeated write harmless. The bytes are the caller's again when
   * this returns.
   */
  writeStdin(number: number, offset: number, bytes: Uint8Array): Promise<void>;
  closeStdin(number: number): void;
  /** Gives up writes that the agent has not had, and resolves with how many bytes it has: the next writer goes on there. */
  takeInput(number: number): Promise<number>;
  /** Of a task on a terminal: the foreground processes are told. No effect on others. */
  resize(number: number, size: TerminalSize): void;
  signal(number: number, signal: number, scope: "leader" | "group"): void;
  /** Tells the agent that output up to `offset` is safe; it may send more. */
  acknowledge(number: number, stream: OutputStream, offset: number): void;
  /** Drops the task: kills it when it runs, forgets it when it has ended. */
  forget(number: number): void;
  /** Rejects when no answer comes within `timeoutMs`. */
  ping(timeoutMs: number): Promise<void>;
  close(): void;
}

/** What an agent says of itself when a link is made. */
export interface GuestHello {
  readonly protocol: number;
  /** Random, made when the agent started: tells a restarted agent from the same one. */
  readonly bootId: string;
  readonly pid: number;
}

/** Who is told what a task does. Calls come in order; `end` is the last, after all output written before the leader's end. */
export interface TaskSink {
  /** Before everything else of a task that was started here: its end may come with its beginning, ahead of any promise. */
  started?(pid: number): void;
  output(stream: OutputStream, offset: number, bytes: Uint8Array): void;
  /** Nobody in the sandbox holds the stream any more. May come after `end` when a background child holds it. */
  ended(stream: OutputStream, offset: number): void;
  end(status: TaskEnd): void;
}

/** The leader's end. The link knows nothing of memory limits: the edge turns a SIGKILL into `out-of-memory`. */
export interface TaskEnd extends Omit<ExitStatus, "cause"> {
  readonly cause: "exited" | "signaled" | "timeout" | "session-ended";
}

/** A task as the agent knows it when it is asked. */
export interface TaskReport {
  readonly number: number;
  readonly pid: number;
  readonly end: TaskEnd | undefined;
  /** First byte of each stream that the agent still holds, and one past the last it has read. */
  readonly streams: Readonly<Record<OutputStream, { readonly from: number; readonly to: number }>>;
}

/** What to run, as whom and where, with everything resolved. */
export interface TaskSpec {
  readonly action: TaskAction;
  /** `name`, `uid`, `name:group` or `uid:gid`, looked up in the sandbox. */
  readonly user: string;
  readonly cwd: string;
  /** The whole environment: nothing is inherited. */
  readonly env: Readonly<Record<string, string>>;
  readonly stdin: "none" | "pipe";
  readonly timeLimitMs: number | undefined;
}

/** How the program of a cell comes to be. */
export type CellProgram = "cold" | "forked" | { readonly argv: readonly Uint8Array[] };

/** Paths are absolute, inside the sandbox, as bytes. File actions end with `code` 0 or the errno that stopped them. */
export type TaskAction =
  | { readonly type: "exec"; readonly argv: readonly Uint8Array[]; readonly terminal?: TerminalSize | undefined }
  /** A shell of the platform that waits for lines. Its streams carry what it says between lines. */
  | { readonly type: "session" }
  /** A line for the shell of a session, given by its task's number: with its own streams, after the lines before it. */
  | { readonly type: "line"; readonly session: number; readonly text: Uint8Array }
  /** Writes the bytes to stdout. `length` undefined: to the end. */
  | { readonly type: "read"; readonly path: Uint8Array; readonly offset: number; readonly length: number | undefined }
  /** Replaces the file by what comes on stdin, atomically, when stdin is closed properly; else leaves the old one. */
  | { readonly type: "write"; readonly path: Uint8Array; readonly mode: number; readonly parents: boolean }
  /** Writes directory entries to stdout in the coding of `decodeEntries`. */
  | { readonly type: "list"; readonly path: Uint8Array; readonly depth: number; readonly hidden: boolean }
  | { readonly type: "stat"; readonly path: Uint8Array }
  | { readonly type: "mkdir"; readonly path: Uint8Array; readonly mode: number; readonly parents: boolean }
  /** `recursive` removes trees and never follows a link; without it only files and empty directories go. */
  | { readonly type: "remove"; readonly path: Uint8Array; readonly recursive: boolean }
  /** Writes the tree to stdout in the coding of `tree.ts`, or makes one of what comes on stdin in it. */
  | { readonly type: "read-tree"; readonly path: Uint8Array }
  | { readonly type: "write-tree"; readonly path: Uint8Array; readonly owners: boolean }
  /** Writes what happens to stdout in the coding of `watch.ts`, until it is dropped or the path is gone. */
  | { readonly type: "watch"; readonly path: Uint8Array; readonly recursive: boolean }
  | { readonly type: "chmod"; readonly path: Uint8Array; readonly mode: number }
  /** `owner` as a user is written, looked up in the sandbox. */
  | { readonly type: "chown"; readonly path: Uint8Array; readonly owner: string }
  | { readonly type: "symlink"; readonly path: Uint8Array; readonly target: Uint8Array; readonly parents: boolean }
  | {
      readonly type: "move";
      readonly path: Uint8Array;
      readonly target: Uint8Array;
      readonly replace: boolean;
      readonly parents: boolean;
    }
  /**
   * In a sandbox with cells: makes the places of so many calls one after the other; the first is ready when the start resolves. Each has
   * the user id behind that of the one before. `program`: `cold` is started at the call, `forked` is made by the fork server ahead and
   * waits, a program is started ahead and waits. stdin takes requests, stdout gives results in the coding of `core/cells.ts`.
   */
  | { readonly type: "cell"; readonly program: CellProgram; readonly calls: number; readonly spaceBytes: number }
  /** In a sandbox with cells: a program that forks what runs in them. It keeps the rights of the sandbox's root. */
  | { readonly type: "fork-server"; readonly argv: readonly Uint8Array[] }
  /**
   * A connection to the sandbox's loopback, without a process: stdin goes into it, stdout is what comes back, the end of either
   * is half a close. It ends when both have, with `code` 0, or the errno that broke it; it does not outlive its link. Rejects
   * with `PortFailed` when nobody takes connections there within the time limit.
   */
  | { readonly type: "connect"; readonly port: number }
  /**
   * Writes who listens in the coding of `decodeListeners`; with a port it writes nothing, and ends when somebody listens
   * there, or at its time limit with the cause `timeout`. Nobody is connected to.
   */
  | { readonly type: "listeners"; readonly port: number | undefined };
