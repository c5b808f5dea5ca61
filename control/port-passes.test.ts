import assert from "node:assert/strict";
import { test } from "node:test";
import { ManualClock } from "#core/clock.ts";
import { newSandboxId, parseEdgeId } from "#core/ids.ts";
import type { Principal } from "./iam/iam.ts";
import { PortPasses } from "./port-passes.ts";
import { MemoryState } from "./state/memory.ts";

const ALICE: Principal = { name: "alice", project: "a", role: "member" };
const sandbox = newSandboxId(parseEdgeId("e"));
const scope = { sandbox, port: 80 };

function passes() {
  const [state, clock] = [new MemoryState(), new ManualClock()];
  return { state, clock, passes: new PortPasses(state, clock) };
}

test("a ticket becomes a pass once, however many come with it, and for its port alone", async () => {
  const { passes: own } = passes();
  const { secret } = await own.issueTicket(ALICE, scope);
  assert.equal(await own.redeem(secret, { ...scope, port: 81 }), undefined);
  assert.equal(await own.redeem(secret, { ...scope, sandbox: newSandboxId(parseEdgeId("e")) }), undefined);
  assert.equal(await own.principalOf(secret, scope), undefined);
  const outcomes = await Promise.all([1, 2, 3].map(() => own.redeem(secret, scope)));
  const [pass, ...more] = outcomes.filter((outcome) => outcome !== undefined);
  assert.equal(more.length, 0);
  assert.deepEqual(await own.principalOf(pass?.secret ?? "", scope), ALICE);
  assert.equal(await own.principalOf(pass?.secret ?? "", { ...scope, port: 81 }), undefined);
  assert.equal(await own.redeem(pass?.secret ?? "", scope), undefined);
});

test("tickets last a minute, passes half a day, and what has expired is swept", async () => {
  const { state, clock, passes: own } = passes();
  const late = await own.issueTicket(ALICE, scope);
  clock.advance(60_000);
  assert.equal(await own.redeem(late.secret, scope), undefined);
  const pass = await own.redeem((await own.issueTicket(ALICE, scope)).secret, scope);
  clock.advance(12 * 3_600_000 - 1);
  assert.deepEqual(await own.principalOf(pass?.secret ?? "", scope), ALICE);
  await own.sweep();
  assert.equal((await state.list("port-pass/")).length, 1);
  clock.advance(1);
  assert.equal(await own.principalOf(pass?.secret ?? "", scope), undefined);
  await own.sweep();
  assert.equal((await state.list("port-pass/")).length, 0);
});

test("the store holds no secret, and text that is none is not looked up", async () => {
  const { state, passes: own } = passes();
  const { secret } = await own.issueTicket(ALICE, scope);
  for (const { key, value } of await state.list("")) assert.ok(!`${key}${value}`.includes(secret));
  for (const text of ["", "x", `${secret}x`, "../token"]) assert.equal(await own.redeem(text, scope), undefined);
});
