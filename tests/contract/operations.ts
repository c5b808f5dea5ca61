import assert from "node:assert/strict";
import type { Result, Sandbox, WatchView } from "#sdk";
import { tarOf } from "../support/tar.ts";

/** `done`: with everything as it should be. `agent-lost`: the command says so, and what it gave until then was right. */
export type Outcome = "done" | "agent-lost";

/** Something that is done in a sandbox, in the middle of which somebody may be killed. */
export interface Operation {
  readonly name: string;
  /** How often it calls `reached`. */
  readonly points: number;
  /** Its bytes come over a connection that can say nothing but that it broke: `Unavailable`, and what comes next says why. */
  readonly breaks?: true;
  /** Goes on over a restart of the node between its calls, and nobody notices. */
  readonly resumes?: true;
  /** Makes what it needs. */
  prepare?(sandbox: Sandbox): Promise<void>;
  /**
   * Does it, and waits at each of its points for `reached`. What came in is compared with what had to come: a part never passes for
   * the whole, and nothing is made up. Rejects with what a call rejected with.
   */
  act(sandbox: Sandbox, reached: () => Promise<void>): Promise<Outcome>;
}

const LINES = 300_000;
const PIECE = Buffer.alloc(100_000, "0123456789abcdef");
const PIECES = 60;
const LISTENS_MS = 20_000;

/** One of each kind. */
export const OPERATIONS: readonly Operation[] = [
  {
    name: "a start",
    points: 1,
    resumes: true,
    act: async (sandbox, reached) => {
      const running = later(sandbox.run("echo a; echo b >&2; exit 3"));
      await reached();
      return outcomeOf(await running(), { code: 3, stdout: "a\n", stderr: "b\n" });
    },
  },
  {
    name: "fifty starts at once",
    points: 1,
    resumes: true,
    act: async (sandbox, reached) => {
      const running = Array.from({ length: 50 }, (_, at) => later(sandbox.run(`echo ${at}`)));
      await running[0]?.();
      await reached();
      const outcomes = await Promise.all(
        running.map(async (each, at) => outcomeOf(await each(), { code: 0, stdout: `${at}\n`, stderr: "" })),
      );
      return outcomes.find((outcome) => outcome !== "done") ?? "done";
    },
  },
  {
    name: "output",
    points: 2,
    resumes: true,
    act: async (sandbox, reached) => {
      const command = await sandbox.start(["seq", "1", String(LINES)]);
      const received: Uint8Array[] = [];
      for await (const bytes of command.stdout({ hold: true })) {
        received.push(new Uint8Array(bytes));
        if (received.length === 1 || received.length === 10) await reached();
      }
      const found = Buffer.concat(received).toString();
      const { status, stdout } = await command.wait();
      assert.equal(found.length, stdout.seen, "what was kept was read");
      return whole(status, found, numbers(LINES), { code: 0 });
    },
  },
  {
    name: "input",
    points: 2,
    act: async (sandbox, reached) => {
      const command = await sandbox.start(["cat"], { stdin: "pipe" });
      const reading = later(textOf(command.stdout({ hold: true })));
      for (let at = 0; at < PIECES; at++) {
        await command.write(PIECE);
        if (at === 0 || at === 20) await reached();
      }
      await command.closeStdin();
      const found = await reading();
      return whole((await command.wait()).status, found, PIECE.toString().repeat(PIECES), { code: 0 });
    },
  },
  {
    name: "a wait and a signal",
    points: 2,
    act: async (sandbox, reached) => {
      const command = await sandbox.start("trap 'exit 5' TERM; echo ready; while :; do sleep 0.01; done");
      for await (const _ of command.stdout()) break;
      const waiting = later(command.wait());
      await reached();
      const told = later(command.signal("SIGTERM"));
      await reached();
      await told();
      return whole((await waiting()).status, "", "", { code: 5 });
    },
  },
  {
    name: "lines of a session",
    points: 3,
    resumes: true,
    act: async (sandbox, reached) => {
      const session = await sandbox.session({ name: "own" });
      const outcomes: Outcome[] = [];
      for (let at = 0; at < 10; at++) {
        const line = later(session.run("x=$((x+1)); echo $x; (exit 4)"));
        if (at === 0 || at === 5) await reached();
        outcomes.push(outcomeOf(await line(), { code: 4, stdout: `${at + 1}\n`, stderr: "" }));
      }
      await reached();
      await session.remove();
      return outcomes.find((outcome) => outcome !== "done") ?? "done";
    },
  },
  {
    name: "a terminal",
    points: 2,
    resumes: true,
    act: async (sandbox, reached) => {
      const size = PIECE.length;
      const command = await sandbox.terminal({
        line: `stty raw -echo; printf r; head -c ${size}`,
        size: { rows: 30, cols: 100 },
      });
      await using attached = await command.attach({ input: true, hold: true });
      let found = "";
      let status: Result["status"] | undefined;
      let typing = async (): Promise<void> => undefined;
      for await (const event of attached) {
        if (event.type === "exit") ({ status } = event.command);
        if (event.type !== "output") continue;
        if (found === "") {
          await reached();
          typing = later(attached.write(PIECE));
          await reached();
        }
        found += Buffer.from(event.bytes).toString();
      }
      assert.ok(status !== undefined, "an attachment that ends by itself tells the end of the command");
      const outcome = whole(status, found, `r${PIECE}`, { code: 0 });
      if (outcome === "done") await typing();
      return outcome;
    },
  },
  {
    name: "a file up",
    points: 2,
    act: async (sandbox, reached) => {
      const written = await sandbox.files.write("/tmp/up", pieces({ 1: reached, 20: reached }));
      assert.equal(written.size, PIECES * PIECE.length);
      return "done";
    },
  },
  {
    name: "a file down",
    points: 2,
    breaks: true,
    prepare: async ({ files }) => void (await files.write("/tmp/down", pieces({}))),
    act: async (sandbox, reached) => {
      let size = 0;
      for await (const bytes of sandbox.files.stream("/tmp/down")) {
        if (size === 0) await reached();
        size += bytes.byteLength;
      }
      await reached();
      assert.equal(size, PIECES * PIECE.length);
      await sandbox.files.read("/tmp/down", { offset: 5, length: 5 });
      return "done";
    },
  },
  {
    name: "a tree up",
    points: 2,
    act: async (sandbox, reached) => {
      const archive = await treeOf(50);
      await sandbox.files.writeTree("/tmp/tree", parts(archive, { 1: reached, 5: reached }));
      return "done";
    },
  },
  {
    name: "a tree down",
    points: 1,
    breaks: true,
    prepare: async ({ files }) => void (await files.writeTree("/tmp/tree", await treeOf(50))),
    act: async (sandbox, reached) => {
      let size = 0;
      for await (const bytes of sandbox.files.readTree("/tmp/tree")) {
        if (size === 0) await reached();
        size += bytes.byteLength;
      }
      assert.ok(size > 50 * PIECE.length);
      return "done";
    },
  },
  {
    name: "changes of files",
    points: 3,
    act: async ({ files }, reached) => {
      for (let at = 0; at < 12; at++) {
        const directory = `/tmp/changed/${at}`;
        const made = later(files.mkdir(directory, { parents: true }));
        if (at === 1) await reached();
        await made();
        await files.write(`${directory}/f`, "text");
        const moved = later(files.move(`${directory}/f`, `${directory}/g`));
        if (at === 5) await reached();
        await moved();
        const listed = later(files.list(directory));
        if (at === 9) await reached();
        assert.deepEqual(
          (await listed()).map(({ name }) => name),
          ["g"],
        );
      }
      return "done";
    },
  },
  {
    name: "a watch",
    points: 2,
    prepare: ({ files }) => files.mkdir("/tmp/watched"),
    act: watched,
  },
  {
    name: "a connection to a port",
    points: 3,
    breaks: true,
    prepare: (sandbox) => serve(sandbox, 7),
    act: async (sandbox, reached) => {
      using connection = await sandbox.ports.connect(7);
      await reached();
      const reading = later(textOf(connection));
      for (let at = 0; at < PIECES; at++) {
        await connection.write(PIECE);
        if (at === 0 || at === 20) await reached();
      }
      connection.end();
      assert.equal(await reading(), PIECE.toString().repeat(PIECES));
      return "done";
    },
  },
  {
    name: "a wait for a port",
    points: 2,
    act: async (sandbox, reached) => {
      const waiting = later(sandbox.ports.wait(8));
      await reached();
      const server = later(serve(sandbox, 8));
      await reached();
      await Promise.all([waiting(), server()]);
      return "done";
    },
  },
  {
    name: "samples of its use",
    points: 1,
    resumes: true,
    act: async (sandbox, reached) => {
      let samples = 0;
      for await (const _ of sandbox.usageStream({ periodMs: 100 })) {
        if (samples++ === 0) await reached();
        if (samples === 3) return "done";
      }
      throw new Error("the samples of a sandbox that lives ended");
    },
  },
];

async function watched(sandbox: Sandbox, reached: () => Promise<void>): Promise<Outcome> {
  const names = [...Array.from({ length: 300 }, (_, at) => `${at}`), "last"];
  const found: string[] = [];
  let missed = false;
  let making = async (): Promise<Result | undefined> => undefined;
  for await (const event of sandbox.files.watch("/tmp/watched")) {
    if (event.type === "ready") {
      making = later(sandbox.run("cd /tmp/watched; for i in $(seq 0 299) last; do mkdir $i; done"));
      await reached();
    } else if (event.type === "overflow") {
      missed = true;
      await making().catch(() => undefined);
      making = later(sandbox.run("cd /tmp/watched; rm -rf last; mkdir last"));
    } else if (event.type === "created") found.push(nameOf(event));
    if (found.length === 10) await reached();
    if (found.at(-1) === "last") break;
  }
  if (!missed) assert.deepEqual(found, names, "without a word of it nothing was missed");
  return (await making())?.status.cause === "agent-lost" ? "agent-lost" : "done";
}

function nameOf({ path }: WatchView): string {
  return typeof path === "string" ? path : "";
}

/** Starts something whose rejection is looked at later. */
function later<T>(promise: Promise<T>): () => Promise<T> {
  promise.catch(() => undefined);
  return () => promise;
}

function outcomeOf(
  result: Result,
  expected: { readonly code: number; readonly stdout: string; readonly stderr: string },
): Outcome {
  whole(result.status, result.stderrText, expected.stderr, expected);
  return whole(result.status, result.stdoutText, expected.stdout, expected);
}

/** A command that has exited has given everything, one that was lost a beginning of it. */
function whole(
  status: Result["status"],
  found: string,
  expected: string,
  { code }: { readonly code: number },
): Outcome {
  if (status.cause === "agent-lost") {
    assert.deepEqual([status.code, status.signal], [undefined, undefined]);
    assert.ok(expected.startsWith(found), "what was lost in the middle has a true beginning");
    return "agent-lost";
  }
  assert.deepEqual([status.cause, status.code], ["exited", code]);
  assert.ok(found === expected, `${found.length} bytes of ${expected.length}`);
  return "done";
}

/** A server on that port that gives back what it gets. */
async function serve(sandbox: Sandbox, port: number): Promise<void> {
  await sandbox.start(["nc", "-ll", "-p", String(port), "-e", "cat"]);
  await sandbox.ports.wait(port, { timeoutMs: LISTENS_MS });
}

/** What `seq 1 COUNT` writes. */
function numbers(count: number): string {
  return Array.from({ length: count }, (_, at) => `${at + 1}\n`).join("");
}

/** As a stream, with something to wait for before some of the pieces. */
async function* pieces(before: Readonly<Record<number, () => Promise<void>>>): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < PIECES; at++) {
    await before[at]?.();
    yield PIECE;
  }
}

async function* parts(
  archive: Uint8Array,
  before: Readonly<Record<number, () => Promise<void>>>,
): AsyncGenerator<Uint8Array> {
  for (let at = 0; at * PIECE.length < archive.length; at++) {
    await before[at]?.();
    yield archive.subarray(at * PIECE.length, (at + 1) * PIECE.length);
  }
}

function treeOf(files: number): Promise<Uint8Array> {
  return tarOf(...Array.from({ length: files }, (_, at) => ({ name: `d/${at}`, body: PIECE })));
}

async function textOf(source: AsyncIterable<Uint8Array>): Promise<string> {
  const received: Uint8Array[] = [];
  for await (const bytes of source) received.push(new Uint8Array(bytes));
  return Buffer.concat(received).toString();
}
