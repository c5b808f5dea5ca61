import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { DsecError, TransportError } from "./errors.ts";
import { type Away, Patience, type PatienceOptions } from "./patience.ts";

const BROKE = new TransportError("the connection broke");
const REFUSED = new TransportError("nobody answers", { details: { refused: true } });

/** Time that passes only while somebody waits. */
function rig(options: Partial<PatienceOptions> = {}) {
  let now = 0;
  const pauses: number[] = [];
  const told: Away[] = [];
  const patience = new Patience({
    limitMs: 120_000,
    isKnown: () => true,
    onAway: (away) => told.push(away),
    clock: {
      now: () => now,
      async pause(delayMs, signal) {
        signal?.throwIfAborted();
        pauses.push(delayMs);
        now += delayMs;
      },
    },
    ...options,
  });
  return {
    patience,
    pauses,
    told,
    pass: (ms: number) => {
      now += ms;
    },
  };
}

describe("patience", () => {
  test("lasts as long as the limit, with pauses that grow to two seconds, and then says how long it was", async () => {
    const { patience, pauses, told } = rig();
    const error = await untilGivenUp(patience, BROKE);
    assert.equal(Math.round(Number(error.details.awayMs)), 120_000);
    assert.match(error.message, /the connection broke, for 120 s now/);
    assert.equal(error.cause, BROKE);
    assert.equal(pauses[0], 0);
    assert.ok(pauses.every((pauseMs) => pauseMs <= 2_000));
    assert.ok(pauses.length > 60);
    assert.deepEqual([told.length, told[0]?.awayMs, told[0]?.limitMs], [pauses.length, 0, 120_000]);
  });

  test("begins anew when something comes", async () => {
    const { patience, pass } = rig({ limitMs: 10_000 });
    for (let round = 0; round < 100; round++) {
      await patience.broke(BROKE);
      pass(4_000);
      await patience.broke(BROKE);
      patience.answered();
      patience.progressed();
    }
  });

  test("proxies cut streams after minutes: a quiet connection that stood for a while was one", async () => {
    const { patience, pass } = rig({ limitMs: 10_000 });
    for (let round = 0; round < 100; round++) {
      await patience.broke(BROKE);
      patience.answered();
      pass(60_000);
    }
  });

  test("does not last with a server that takes connections only to end them", async () => {
    const { patience } = rig({ limitMs: 10_000 });
    const error = await untilGivenUp(patience, BROKE, () => patience.answered());
    assert.equal(Math.round(Number(error.details.awayMs)), 10_000);
  });

  test("is not for a server that never answered, nor for what is no absence", async () => {
    const unknown = rig({ isKnown: () => false });
    for (const error of [REFUSED, BROKE]) await assert.rejects(unknown.patience.broke(error), error);
    const { patience, pauses } = rig();
    for (const error of [new DsecError("NotFound", "no such command"), new TypeError("a bug")]) {
      await assert.rejects(patience.broke(error), error);
    }
    assert.deepEqual([...pauses, ...unknown.pauses], []);
    await rig().patience.broke(REFUSED);
    await rig().patience.broke(new DsecError("Unavailable", "the node is closing"));
  });

  test("ends with the signal, and at once with a limit of nothing", async () => {
    const reason = new Error("enough");
    await assert.rejects(rig({ signal: AbortSignal.abort(reason) }).patience.broke(BROKE), reason);
    await assert.rejects(rig({ limitMs: 0 }).patience.broke(BROKE), { kind: "Unavailable" });
  });
});

async function untilGivenUp(patience: Patience, error: DsecError, between = () => {}): Promise<DsecError> {
  for (;;) {
    try {
      await patience.broke(error);
    } catch (final) {
      assert.ok(final instanceof DsecError);
      return final;
    }
    between();
  }
}
