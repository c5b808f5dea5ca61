import assert from "node:assert/strict";
import { closeSync, existsSync, mkdtempSync, openSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import fc from "fast-check";
import { pattern } from "#backends/fake/programs.ts";
import type { StreamInfo } from "#core/sandbox.ts";
import { ALWAYS_KEPT_BYTES, OutputBudget } from "#edge/output/budget.ts";
import { OutputLog, SMALL_BYTES } from "#edge/output/log.ts";

class Place implements Disposable {
  readonly dir = mkdtempSync(join(tmpdir(), "dsec-log-"));
  readonly errors: unknown[] = [];
  budget: OutputBudget | undefined;
  #count = 0;

  options(capBytes: number, path?: string) {
    this.#count += 1;
    const onStoreError = (error: unknown) => this.errors.push(error);
    const budget = this.budget ?? new OutputBudget(Number.MAX_SAFE_INTEGER, () => 0);
    return { path: path ?? join(this.dir, `${this.#count}`), capBytes, budget, onStoreError };
  }

  [Symbol.dispose](): void {
    rmSync(this.dir, { recursive: true, force: true });
  }
}

/** Everything that can be read from `offset` on: offsets of runs and their bytes. */
function readAll(
  log: OutputLog,
  offset = 0,
  limit = 1000,
): { readonly bytes: Map<number, number>; readonly count: number } {
  const bytes = new Map<number, number>();
  let at = offset;
  const next = () => log.read(at, Buffer.alloc(limit));
  for (let chunk = next(); chunk !== undefined; chunk = next()) {
    assert.ok(chunk.offset >= at && chunk.bytes.length > 0 && chunk.bytes.length <= limit);
    for (const [index, byte] of chunk.bytes.entries()) bytes.set(chunk.offset + index, byte);
    at = chunk.offset + chunk.bytes.length;
  }
  return { bytes, count: bytes.size };
}

/** The model: every byte at its offset is offset mod 251; kept are the first and the last half of the cap. */
function assertKept(log: OutputLog, seen: number, cap: number, from = 0): void {
  const { bytes } = readAll(log, from);
  const head = Math.floor(cap / 2);
  const tailFrom = Math.max(head, seen - (cap - head));
  let expected = 0;
  for (let offset = from; offset < seen; offset += 1) {
    if (offset >= head && offset < tailFrom) continue;
    expected += 1;
    assert.equal(bytes.get(offset), offset % 251, `byte ${offset} of ${seen}`);
  }
  assert.equal(bytes.size, expected);
}

interface Reader {
  readonly hold: ReturnType<OutputLog["hold"]>;
  at: number;
}

/** As much as the agent's window allows. */
function appendSome(log: OutputLog, bytes: number): void {
  const size = Math.min(bytes, 256 * 1024 - (log.seen - log.safe));
  if (size > 0) log.append(log.seen, pattern(log.seen, size));
}

/** A reader that holds gets the next bytes of the stream, whatever was dropped. */
function takeSome(log: OutputLog, reader: Reader, bytes: number): void {
  const chunk = log.read(reader.at, Buffer.alloc(Math.max(1, bytes)));
  if (chunk === undefined) return;
  assert.equal(chunk.offset, reader.at, "a holder loses nothing");
  assert.ok(Buffer.from(pattern(chunk.offset, chunk.bytes.length)).equals(chunk.bytes));
  reader.at += chunk.bytes.length;
  reader.hold.move(reader.at);
}

describe("an output log", () => {
  test("keeps little output in memory and touches no disk", () => {
    using place = new Place();
    const options = place.options(1 << 20);
    using log = new OutputLog(options);
    log.append(0, pattern(0, SMALL_BYTES));
    assert.equal(existsSync(options.path), false);
    assert.equal(log.safe, 0);
    assert.equal(log.small?.length, SMALL_BYTES);
    log.recorded();
    assert.equal(log.safe, SMALL_BYTES);
    assertKept(log, SMALL_BYTES, 1 << 20);
  });

  test("makes more safe at once by writing it to a file", () => {
    using place = new Place();
    using log = new OutputLog(place.options(1 << 20));
    log.append(0, pattern(0, SMALL_BYTES));
    log.append(SMALL_BYTES, pattern(SMALL_BYTES, 1));
    assert.equal(log.safe, SMALL_BYTES + 1);
    assert.equal(log.small, undefined);
    assertKept(log, SMALL_BYTES + 1, 1 << 20);
  });

  test("takes every byte once, however often it comes", () => {
    using place = new Place();
    using log = new OutputLog(place.options(1000));
    log.append(0, pattern(0, 10));
    log.append(5, pattern(5, 10));
    log.append(0, pattern(0, 3));
    assert.equal(log.seen, 15);
    assertKept(log, 15, 1000);
    assert.throws(() => log.append(16, pattern(16, 1)));
  });

  test("keeps exactly the cap, its first and its last half, and counts the rest", () => {
    using place = new Place();
    using log = new OutputLog(place.options(40_001));
    for (let at = 0; at < 500_000; at += 7_919) log.append(at, pattern(at, 7_919));
    const { seen } = log.info;
    assertKept(log, seen, 40_001);
    assert.deepEqual(log.info, { seen, kept: 40_001, truncated: true, ended: false });
  });

  test("any interleaving of appends, reads and crashes equals the model", () => {
    using place = new Place();
    const step = fc.oneof(
      {
        weight: 6,
        arbitrary: fc.record({
          kind: fc.constant("append" as const),
          size: fc.nat({ max: 9_000 }),
          again: fc.nat({ max: 50 }),
        }),
      },
      { weight: 2, arbitrary: fc.record({ kind: fc.constant("read" as const), from: fc.nat({ max: 60_000 }) }) },
      { weight: 1, arbitrary: fc.record({ kind: fc.constant("crash" as const) }) },
      { weight: 1, arbitrary: fc.record({ kind: fc.constant("record" as const) }) },
    );
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 50_000 }), fc.array(step, { maxLength: 30 }), (cap, steps) => {
        const options = place.options(cap);
        let log = new OutputLog(options);
        let journal: { small: Uint8Array | undefined; info: StreamInfo } | undefined;
        for (const one of steps) {
          if (one.kind === "append") {
            const from = Math.max(log.safe, log.seen - one.again);
            log.append(from, pattern(from, one.size));
          }
          if (one.kind === "read") assertKept(log, log.seen, cap, one.from);
          if (one.kind === "record" && journal === undefined) {
            journal = { small: log.small, info: log.info };
            log.recorded();
          }
          if (one.kind === "crash") {
            const { safe } = log;
            log[Symbol.dispose]();
            log = OutputLog.reopen(options, journal?.small, journal?.info);
            assert.ok(log.seen >= safe, `safe was ${safe}, there are ${log.seen}`);
          }
        }
        assertKept(log, log.seen, cap);
        assert.deepEqual(place.errors, []);
        log[Symbol.dispose]();
      }),
      { numRuns: 150 },
    );
  });

  test("any interleaving of appends, reads, holds, leaving holders, refused budgets and crashes equals the model", () => {
    using place = new Place();
    const step = fc.oneof(
      { weight: 6, arbitrary: fc.record({ kind: fc.constant("append" as const), size: fc.nat({ max: 60_000 }) }) },
      { weight: 3, arbitrary: fc.record({ kind: fc.constant("take" as const), size: fc.nat({ max: 40_000 }) }) },
      { weight: 1, arbitrary: fc.record({ kind: fc.constant("hold" as const) }) },
      { weight: 1, arbitrary: fc.record({ kind: fc.constant("leave" as const) }) },
      { weight: 1, arbitrary: fc.record({ kind: fc.constant("refuse" as const) }) },
      { weight: 1, arbitrary: fc.record({ kind: fc.constant("crash" as const) }) },
    );
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 300_000 }), fc.array(step, { maxLength: 40 }), (cap, steps) => {
        let left = Number.MAX_SAFE_INTEGER;
        place.budget = new OutputBudget(left, () => 0);
        Object.assign(place.budget, { grow: (bytes: number) => bytes <= left });
        const options = place.options(cap);
        let log = new OutputLog(options);
        let holder: Reader | undefined;
        for (const one of steps) {
          if (one.kind === "append") appendSome(log, one.size);
          if (one.kind === "take" && holder !== undefined) takeSome(log, holder, one.size);
          if (one.kind === "hold" && holder === undefined) {
            const first = log.read(0, Buffer.alloc(1));
            // From where everything is still there.
            const at = first !== undefined && !log.info.truncated ? 0 : log.seen;
            holder = { hold: log.hold(at), at };
          }
          if (one.kind === "leave" || one.kind === "crash") {
            holder?.hold[Symbol.dispose]();
            holder = undefined;
          }
          if (one.kind === "refuse") left = 0;
          if (one.kind === "crash") {
            const { safe, capBytes } = log;
            log[Symbol.dispose]();
            log = OutputLog.reopen(options, undefined, undefined);
            assert.ok(log.seen >= safe && log.capBytes >= Math.min(capBytes, cap));
          }
          assert.ok(log.capBytes <= cap && log.capBytes >= Math.min(cap, ALWAYS_KEPT_BYTES));
          assert.ok(log.info.kept <= log.budgetedBytes && log.budgetedBytes <= log.capBytes);
        }
        holder?.hold[Symbol.dispose]();
        assertKept(log, log.seen, log.capBytes);
        assert.deepEqual(place.errors, []);
        log[Symbol.dispose]();
      }),
      { numRuns: 200 },
    );
  });

  test("a death in the middle of a write into the ring gives out no wrong byte", () => {
    using place = new Place();
    const options = place.options(2_000);
    new OutputLog(options).append(0, pattern(0, 20_000));
    // What such a process leaves: it had announced 300 bytes more, and written them over the oldest of the ring.
    const fd = openSync(options.path, "r+");
    const reached = Buffer.alloc(8);
    reached.writeBigUInt64LE(20_300n);
    writeSync(fd, reached, 0, 8, 8);
    writeSync(fd, Buffer.alloc(300, 0xff), 0, 300, 24 + 1_000 + ((20_000 - 1_000) % 1_000));
    closeSync(fd);
    using log = OutputLog.reopen(options, undefined, undefined);
    assert.equal(log.seen, 20_000);
    const { bytes } = readAll(log, 1_000);
    assert.equal(bytes.size, 700);
    for (const [offset, byte] of bytes) assert.equal(byte, offset % 251);
    log.append(20_000, pattern(20_000, 300));
    assertKept(log, 20_300, 2_000);
  });
});

describe("a holder", () => {
  test("never loses a byte: what it has not read stays, and is not safe", () => {
    using place = new Place();
    using log = new OutputLog(place.options(40_000));
    using hold = log.hold(0);
    let sent = 0;
    let read = 0;
    // The agent's window: no more than this beyond what is safe.
    const send = () => {
      while (sent - log.safe < 200_000 && sent < 1_000_000) {
        log.append(sent, pattern(sent, 10_000));
        sent += 10_000;
      }
    };
    for (send(); read < 1_000_000; send()) {
      const chunk = log.read(read, Buffer.alloc(8_192));
      assert.ok(chunk !== undefined, `nothing at ${read} of ${sent}`);
      assert.equal(chunk.offset, read);
      assert.deepEqual(new Uint8Array(chunk.bytes), pattern(read, chunk.bytes.length));
      read += chunk.bytes.length;
      hold.move(read);
    }
  });

  test("that leaves lets the log go on", () => {
    using place = new Place();
    using log = new OutputLog(place.options(20_000));
    const hold = log.hold(0);
    log.append(0, pattern(0, 60_000));
    assert.ok(log.safe < 60_000);
    hold[Symbol.dispose]();
    assert.equal(log.safe, 60_000);
    assertKept(log, 60_000, 20_000);
  });
});

test("a disk that refuses stops the log, not the command, and says so once", () => {
  using place = new Place();
  using log = new OutputLog(place.options(1 << 20, "/dev/null/not-a-directory"));
  log.append(0, pattern(0, SMALL_BYTES));
  log.append(SMALL_BYTES, pattern(SMALL_BYTES, 100_000));
  log.append(SMALL_BYTES + 100_000, pattern(0, 5));
  assert.equal(place.errors.length, 1);
  assert.equal(log.safe, SMALL_BYTES + 100_005);
  assert.deepEqual(log.info, { seen: SMALL_BYTES + 100_005, kept: SMALL_BYTES, truncated: true, ended: false });
  assertKept(log, SMALL_BYTES, 1 << 20);
});
