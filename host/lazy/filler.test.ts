import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, mkdirSync, mkdtempSync, openSync, rmSync, truncateSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { describe, test } from "node:test";
import { setImmediate as immediate } from "node:timers/promises";
import { promisify } from "node:util";
import { ManualClock } from "#core/clock.ts";
import { processStartTicks } from "#host/sys/process.ts";
import { type Channel, channelPaths, openChannel, removeChannel } from "./channel.ts";
import { Filler } from "./filler.ts";
import { MECHANISMS, type Mechanism } from "./requests.ts";
import { PATTERN_PIECE_BYTES, patternSha256 } from "./test-support/pattern.ts";
import type { PatternSetup } from "./test-support/pattern-filler.ts";
import { NOTICED_MS } from "./watchdog.ts";

const run = promisify(execFile);
const PIECES = 40;
const WORDS = [join(import.meta.dirname, "test-support/pattern-filler.ts")];

for (const mechanism of MECHANISMS) {
  describe(`lazy files by ${mechanism}`, () => {
    test("a reader gets what the filler brings, and only what is read is brought", async () => {
      await using rig = await openRig(mechanism);
      assert.equal(await rig.read(3, 5), patternSha256("one", 3, 5));
      const { asked } = await rig.tell("look");
      assert.ok(asked >= 1 && asked < PIECES, `${asked} reads`);
      assert.equal(await rig.read(0, PIECES), patternSha256("one", 0, PIECES));
      assert.equal(await rig.read(0, PIECES), patternSha256("one", 0, PIECES));
    });

    test("a read of what is there does not wait, and whoever fills is told when it meets a mark", async () => {
      await using rig = await openRig(mechanism, { fails: true, marked: 10 });
      assert.equal(await rig.read(10, 11), patternSha256("one", 10, 11));
      await rig.marked();
      assert.equal((await rig.tell("look")).asked, 0);
    });

    test("a read that cannot be filled fails, and succeeds later", async () => {
      await using rig = await openRig(mechanism, { fails: true });
      await assert.rejects(rig.read(0, 1), /Input\/output error/);
      await rig.again({});
      assert.equal(await rig.read(0, 1), patternSha256("one", 0, 1));
    });

    test("readers wait while a killed filler is replaced, and get their data", async () => {
      await using rig = await openRig(mechanism, { holds: true });
      const reading = Promise.all(Array.from({ length: 8 }, (_, at) => rig.read(at * 4, at * 4 + 2)));
      await rig.asked(8);
      for (let round = 0; round < 3; round++) {
        process.kill(rig.filler.pid, "SIGKILL");
        await rig.asked(8);
      }
      await rig.tell("go");
      assert.deepEqual(
        await reading,
        Array.from({ length: 8 }, (_, at) => patternSha256("one", at * 4, at * 4 + 2)),
      );
    });

    test("a filler that hangs is replaced, its readers get their data, and one that is alive is let be", async () => {
      await using rig = await openRig(mechanism, { holds: true });
      const first = rig.filler.pid;
      // Answers come in the order of the questions.
      for (let asked = 0; asked < 10; asked++) {
        rig.clock.advance(NOTICED_MS / 4);
        await rig.tell("look");
      }
      assert.equal(rig.filler.pid, first);
      const reading = Promise.all([rig.read(0, 2), rig.read(8, 10)]);
      await rig.asked(2);
      process.kill(first, "SIGSTOP");
      rig.clock.advance(NOTICED_MS);
      await rig.asked(2);
      assert.notEqual(rig.filler.pid, first);
      await rig.tell("go");
      assert.deepEqual(await reading, [patternSha256("one", 0, 2), patternSha256("one", 8, 10)]);
    });

    test("the next node takes over from the filler of a node that died, and readers wait", async () => {
      await using rig = await openRig(mechanism, { holds: true });
      const reading = rig.read(0, 2);
      await rig.asked(1);
      await rig.abandon();
      assert.equal((await rig.open({ holds: false })).hasGap, false);
      assert.equal(await reading, patternSha256("one", 0, 2));
    });

    test("when filler and node died together, the next node is told of the gap", async () => {
      await using rig = await openRig(mechanism);
      const pid = rig.filler.pid;
      await rig.abandon();
      const startTicks = processStartTicks(pid);
      process.kill(pid, "SIGKILL");
      while (processStartTicks(pid) === startTicks) await immediate();
      assert.equal((await rig.open({})).hasGap, true);
      assert.equal(await rig.read(7, 9), patternSha256("one", 7, 9));
    });

    test("a process that has nothing else to do sees the end of its filler through", async () => {
      await using rig = await openRig(mechanism);
      await rig.abandon();
      const script = `
        import { openChannel } from "${import.meta.dirname}/channel.ts";
        import { Filler } from "${import.meta.dirname}/filler.ts";
        const { runDir, mechanism, words, setup } = JSON.parse(process.argv[1]);
        const options = { runDir, words, cgroups: [], answerMs: 20_000, onEvent: () => {}, log: () => {}, setup: () => setup };
        const filler = new Filler(await openChannel(runDir, mechanism), options);
        await filler.call({ call: "look" });
        filler.keep(false);
        await filler[Symbol.asyncDispose]();
        console.log("ended");`;
      const ended = await run(process.execPath, ["--input-type=module", "-e", script, rig.asJson()]);
      assert.equal(ended.stdout, "ended\n");
      await rig.open({});
    });

    test("nothing is left when it is not kept", async () => {
      const rig = await openRig(mechanism);
      await rig[Symbol.asyncDispose]();
      assert.equal((await openAndRemove(rig.runDir, mechanism)).hasGap, false);
    });
  });
}

async function openAndRemove(runDir: string, mechanism: Mechanism): Promise<Channel> {
  mkdirSync(runDir, { recursive: true });
  const channel = await openChannel(runDir, mechanism);
  closeSync(channel.descriptor);
  removeChannel(runDir);
  rmSync(runDir, { recursive: true });
  return channel;
}

type Behaviour = Partial<Pick<PatternSetup, "holds" | "fails" | "marked">>;

async function openRig(mechanism: Mechanism, behaviour: Behaviour = {}): Promise<Rig> {
  const rig = new Rig(mechanism);
  await rig.open(behaviour);
  return rig;
}

/** A filler of one file, as a node runs it. */
class Rig implements AsyncDisposable {
  readonly runDir = mkdtempSync(join(tmpdir(), "dsec-lazy-"));
  readonly clock = new ManualClock();
  readonly #mechanism: Mechanism;
  readonly #data = join(this.runDir, "data");
  readonly #path: string;
  #events: string[] = [];
  #arrived = Promise.withResolvers<void>();
  #behaviour: Behaviour = {};
  #filler: Filler | undefined;

  constructor(mechanism: Mechanism) {
    this.#mechanism = mechanism;
    this.#path = mechanism === "fanotify" ? this.#data : join(channelPaths(this.runDir).files, "one");
    closeSync(openSync(this.#data, "w"));
    truncateSync(this.#data, PIECES * PATTERN_PIECE_BYTES);
  }

  get filler(): Filler {
    assert.ok(this.#filler);
    return this.#filler;
  }

  /** As a node does at its start. */
  async open(behaviour: Behaviour): Promise<Channel> {
    this.#behaviour = behaviour;
    const channel = await openChannel(this.runDir, this.#mechanism);
    this.#events = [];
    this.#filler = new Filler(channel, {
      words: WORDS,
      runDir: this.runDir,
      cgroups: [],
      answerMs: 20_000,
      clock: this.clock,
      setup: () => ({ ...this.#setup() }),
      onEvent: (event) => this.#note(String(event)),
      log: () => undefined,
    });
    await this.#await("ready", 1);
    return channel;
  }

  /** Another filler in the place of this one. */
  async again(behaviour: Behaviour): Promise<void> {
    this.#behaviour = behaviour;
    this.#events = [];
    process.kill(this.filler.pid, "SIGKILL");
    await this.#await("ready", 1);
  }

  /** As when a node is killed: its filler goes on. */
  async abandon(): Promise<void> {
    this.filler.keep(true);
    await this.filler[Symbol.asyncDispose]();
  }

  /** Resolves with the next `count` reads that a filler was asked for. */
  async asked(count: number): Promise<void> {
    await this.#await("asked", count);
    this.#events = [];
  }

  async marked(): Promise<void> {
    await this.#await("marked", 1);
  }

  /** What another process needs to run such a filler. */
  asJson(): string {
    return JSON.stringify({ runDir: this.runDir, mechanism: this.#mechanism, words: WORDS, setup: this.#setup() });
  }

  async tell(call: string): Promise<{ readonly asked: number }> {
    return (await this.filler.call({ call })) as { asked: number };
  }

  /** The SHA-256 of a range of pieces, as a process of its own reads it: a filler's own reads are not asked about. */
  async read(first: number, end: number): Promise<string> {
    const script = 'set -o pipefail; dd if="$1" bs="$2" skip="$3" count="$4" status=none | sha256sum';
    const words = ["-c", script, "-", this.#path, PATTERN_PIECE_BYTES, first, end - first].map(String);
    const reader = spawn("bash", words, { stdio: ["ignore", "pipe", "pipe"] });
    const [out, err, [code]] = await Promise.all([text(reader.stdout), text(reader.stderr), once(reader, "close")]);
    if (code !== 0) throw new Error(err);
    return out.slice(0, 64);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.filler.keep(false);
    await this.filler[Symbol.asyncDispose]();
    rmSync(this.runDir, { recursive: true });
  }

  #setup(): PatternSetup {
    return {
      mechanism: this.#mechanism,
      hand: channelPaths(this.runDir).hand,
      files: [{ name: "one", path: this.#data, sizeBytes: PIECES * PATTERN_PIECE_BYTES }],
      holds: false,
      fails: false,
      ...this.#behaviour,
    };
  }

  #note(event: string): void {
    this.#events.push(event);
    this.#arrived.resolve();
  }

  async #await(event: string, count: number): Promise<void> {
    while (this.#events.filter((each) => each === event).length < count) {
      this.#arrived = Promise.withResolvers<void>();
      await this.#arrived.promise;
    }
  }
}
