import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { after, before, describe, test } from "node:test";
import type { Cradle, CradleRequest } from "./client.ts";
import { ask, childrenOf, leftovers, makeRig, type Rig, shell, stop } from "./testdata/rig.ts";

const soon = () => AbortSignal.timeout(20_000);
const SANITIZED = resolve(import.meta.dirname, "../../.build/dsec-cradle-asan");

/** Resolves when the launcher has said that this process ended. */
function ended(cradle: Cradle, pid: number): Promise<void> {
  return new Promise((resolve) => {
    const heard = cradle.onExit((exit) => {
      if (exit.pid !== pid) return;
      heard[Symbol.dispose]();
      resolve();
    });
  });
}

describe("blanks", () => {
  let rig: Rig;
  before(() => {
    rig = makeRig();
  });
  after(() => rig[Symbol.dispose]());

  const withCgroups = (id: string): CradleRequest => rig.request(id, { cgroups: rig.cgroups(id) });

  for (const binary of [undefined, SANITIZED]) {
    test(`the create of its ids makes it the sandbox, once${binary ? ", with sanitizers" : ""}`, async () => {
      await using cradle = await rig.start(binary === undefined ? {} : { binary });
      const request = withCgroups(`blank${binary ? 1 : 2}`);
      const blank = rig.blank(request);
      const { pid } = await cradle.blank(blank, soon());
      assert.ok(existsSync(blank.socketPath));
      assert.equal((await cradle.create(request, soon())).pid, pid);
      assert.equal(existsSync(blank.socketPath), false);
      assert.match(
        (await shell(request, "hostname; cat /etc/base")).out,
        new RegExp(`${request.hostname}\nfrom the base`),
      );
      await stop(cradle, pid);

      const next = withCgroups(`blank${binary ? 3 : 4}`);
      const made = await cradle.create({ ...next, uidBase: request.uidBase, upperDir: request.upperDir }, soon());
      assert.notEqual(made.pid, pid);
      await stop(cradle, made.pid);
    });
  }

  test("a create of other ids leaves it alone", async () => {
    await using cradle = await rig.start();
    const [mine, other] = [withCgroups("mine5"), withCgroups("other6")];
    const { pid } = await cradle.blank(rig.blank(mine), soon());
    const made = await cradle.create(other, soon());
    assert.notEqual(made.pid, pid);
    assert.equal((await cradle.create(mine, soon())).pid, pid);
    await Promise.all([stop(cradle, pid), stop(cradle, made.pid)]);
  });

  test("many more creates than workers pass by the blanks that are kept", async () => {
    await using cradle = await rig.start();
    const kept = [20, 21, 22, 23].map((number) => withCgroups(`kept${number}`));
    const blanks = await Promise.all(kept.map((request) => cradle.blank(rig.blank(request), soon())));
    const others = Array.from({ length: 48 }, (_, index) => withCgroups(`crowd${100 + index}`));
    const made = await Promise.all(others.map((request) => cradle.create(request, AbortSignal.timeout(60_000))));
    const used = await Promise.all(kept.map((request) => cradle.create(request, soon())));
    assert.deepEqual(used, blanks);
    await Promise.all([...made, ...used].map(({ pid }) => stop(cradle, pid)));
  });

  test("one that died is told, and the create of its ids makes another", async () => {
    await using cradle = await rig.start();
    const request = withCgroups("dead7");
    const { pid } = await cradle.blank(rig.blank(request), soon());
    const told = ended(cradle, pid);
    process.kill(pid, "SIGKILL");
    await told;
    const made = await cradle.create(request, soon());
    assert.notEqual(made.pid, pid);
    assert.match(await ask(request, "@facts"), /^pid 1$/m);
    await stop(cradle, made.pid);
  });

  test("one that is dropped ends with its socket, and nothing happens when there is none", async () => {
    await using cradle = await rig.start();
    const request = withCgroups("drop8");
    cradle.drop(request.uidBase);
    const blank = rig.blank(request);
    const { pid } = await cradle.blank(blank, soon());
    const told = ended(cradle, pid);
    cradle.drop(request.uidBase);
    await told;
    const made = await cradle.create(request, soon());
    assert.notEqual(made.pid, pid);
    assert.equal(existsSync(blank.socketPath), false);
    await stop(cradle, made.pid);
  });

  test("one cannot be made where its socket cannot be, and then nothing is left", async () => {
    await using cradle = await rig.start();
    const request = rig.request("nowhere9");
    const at = (socketPath: string) => cradle.blank({ ...rig.blank(request), socketPath }, soon());
    await assert.rejects(at("/nowhere/at/all.sock"), { kind: "Internal", message: /open its directory/ });
    await assert.rejects(at(`/tmp/${"long/".repeat(900)}s`), { message: /socket/ });
    await assert.rejects(cradle.blank({ ...rig.blank(request), uidBase: 0 }, soon()), /no range of ids/);
    assert.deepEqual(leftovers(cradle, [request]), []);
  });

  test("arguments that an agent cannot take at once fail the create, and nothing is left", async () => {
    await using cradle = await rig.start();
    const request = withCgroups("words10");
    await cradle.blank(rig.blank(request), soon());
    await assert.rejects(
      cradle.create({ ...request, agentArgs: ["x".repeat(5_000)] }, soon()),
      /arguments of more than/,
    );
    assert.deepEqual(leftovers(cradle, [request]), []);
  });

  test("they end with the launcher, however that ends", async () => {
    for (const [number, end] of [
      [11, (cradle: Cradle) => cradle[Symbol.asyncDispose]()],
      [12, (cradle: Cradle) => void process.kill(cradle.pid, "SIGKILL")],
    ] as const) {
      const cradle = await rig.start();
      const { pid } = await cradle.blank(rig.blank(rig.request(`end${number}`)), soon());
      assert.ok(childrenOf(cradle.pid).includes(pid));
      await end(cradle);
      await cradle.closed;
      await gone(pid);
    }
  });

  test("one whose worker is killed ends too", async () => {
    await using cradle = await rig.start();
    const { pid } = await cradle.blank(rig.blank(rig.request("worker13")), soon());
    const told = ended(cradle, pid);
    for (const child of childrenOf(cradle.pid)) if (child !== pid) process.kill(child, "SIGKILL");
    await told;
  });
});

/** Resolves when no process has this pid; whoever adopted it takes its time. */
async function gone(pid: number): Promise<void> {
  while (existsSync(`/proc/${pid}`)) await new Promise((resolve) => setImmediate(resolve));
}
