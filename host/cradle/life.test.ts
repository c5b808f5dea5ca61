import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readFileSync, readlinkSync } from "node:fs";
import { resolve } from "node:path";
import { after, before, describe, test } from "node:test";
import { hasCode } from "#core/errors.ts";
import type { AgentExit, Cradle } from "./client.ts";
import { ask, childrenOf, leftovers, linkOf, makeRig, type Rig, stop } from "./testdata/rig.ts";

const HOLD_DEAD = resolve(import.meta.dirname, "../../.build/cradle-hold-dead");
/** As many as the launcher has: MAX_JOBS of pool.h. */
const WORKERS = 32;
const SANITIZED = resolve(import.meta.dirname, "../../.build/dsec-cradle-asan");

/** The next exit that is reported, of this agent if one is named. */
function nextExit(cradle: Cradle, pid: number): Promise<AgentExit> {
  const { promise, resolve } = Promise.withResolvers<AgentExit>();
  cradle.onExit((exit) => exit.pid === pid && resolve(exit));
  return promise;
}

describe("the life of sandboxes and of their launcher", () => {
  let rig: Rig;
  before(() => {
    rig = makeRig();
  });
  after(() => rig[Symbol.dispose]());

  test("an agent's end is reported once, with its code or its signal", async () => {
    await using cradle = await rig.start();
    const first = rig.request("end1");
    const second = rig.request("end2");
    const [a, b] = await Promise.all(
      [first, second].map((request) => cradle.create(request, AbortSignal.timeout(20_000))),
    );
    assert.ok(a && b);
    const exits: AgentExit[] = [];
    cradle.onExit((exit) => exits.push(exit));
    const both = [nextExit(cradle, a.pid), nextExit(cradle, b.pid)];
    await ask(first, "@exit 5");
    process.kill(b.pid, "SIGKILL");
    assert.deepEqual(await Promise.all(both), [
      { pid: a.pid, code: 5, signal: undefined },
      { pid: b.pid, code: undefined, signal: 9 },
    ]);
    assert.equal(exits.length, 2);
  });

  test("an agent that dies at once is a failed create or a reported exit, never silence", async () => {
    await using cradle = await rig.start();
    const exits: number[] = [];
    cradle.onExit((exit) => exits.push(exit.pid));
    for (let round = 0; round < 10; round++) {
      const request = rig.request(`dies${round}`, { agentArgs: ["--die"] });
      const [outcome] = await Promise.allSettled([cradle.create(request, AbortSignal.timeout(20_000))]);
      if (outcome.status === "rejected") assert.match(String(outcome.reason), /the agent died/);
      else if (!exits.includes(outcome.value.pid)) await nextExit(cradle, outcome.value.pid);
    }
  });

  test("sandboxes outlive a launcher that is closed, and one that is killed", async () => {
    for (const [id, end] of [
      ["outlive1", (cradle: Cradle) => cradle[Symbol.asyncDispose]()],
      ["outlive2", (cradle: Cradle) => void process.kill(cradle.pid, "SIGKILL")],
    ] as const) {
      const cradle = await rig.start();
      const request = rig.request(id);
      const { pid } = await cradle.create(request, AbortSignal.timeout(20_000));
      await end(cradle);
      await cradle.closed;
      assert.match(await ask(request, "@facts"), /^pid 1$/m);
      await assert.rejects(cradle.create(rig.request(`${id}9`), AbortSignal.timeout(20_000)), { kind: "Unavailable" });
      process.kill(pid, "SIGKILL");
    }
  });

  test("agents are born in the cgroups where agents live, and not in their sandbox's", async () => {
    await using cradle = await rig.start();
    const homes = rig.cgroups("agents").map((cgroup) => cgroup.dir);
    for (const home of homes) mkdirSync(home);
    const request = rig.request("home1", { cgroups: rig.cgroups("home1"), agentCgroups: homes });
    const { pid } = await cradle.create(request, AbortSignal.timeout(20_000));
    for (const home of homes) assert.ok(readFileSync(`${home}/cgroup.procs`, "utf8").split("\n").includes(String(pid)));
    for (const cgroup of request.cgroups) assert.equal(readFileSync(`${cgroup.dir}/cgroup.procs`, "utf8"), "");
    await stop(cradle, pid);
  });

  test("64 creates at once all succeed, in namespaces of their own", async () => {
    await using cradle = await rig.start();
    const requests = Array.from({ length: 64 }, (_, index) => {
      const id = `many${index}`;
      return rig.request(id, { cgroups: rig.cgroups(id) });
    });
    const made = await Promise.all(requests.map((request) => cradle.create(request, AbortSignal.timeout(60_000))));
    const nets = new Set(made.map(({ pid }) => readlinkSync(`/proc/${pid}/ns/net`)));
    assert.equal(nets.size, 64);
    const names = await Promise.all(requests.map((request) => ask(request, "hostname")));
    for (const [index, request] of requests.entries()) assert.match(names[index] ?? "", new RegExp(request.hostname));
    await Promise.all(made.map(({ pid }) => stop(cradle, pid)));
  });

  test("a create that is aborted leaves nothing, and an abort that comes too late changes nothing", async () => {
    await using cradle = await rig.start();
    await assert.rejects(cradle.create(rig.request("never"), AbortSignal.abort()), { kind: "Cancelled" });
    let cancelled = 0;
    for (let round = 0; round < 20; round++) {
      const id = `abort${round}`;
      const request = rig.request(id, { cgroups: rig.cgroups(id) });
      const controller = new AbortController();
      const creating = cradle.create(request, controller.signal);
      if (round % 2 === 0) controller.abort();
      else setImmediate(() => controller.abort());
      const [outcome] = await Promise.allSettled([creating]);
      if (outcome.status === "fulfilled") {
        await stop(cradle, outcome.value.pid);
        continue;
      }
      cancelled++;
      assert.equal(outcome.reason.kind, "Cancelled");
      assert.deepEqual(leftovers(cradle, [request]), []);
    }
    assert.ok(cancelled > 0, "no create was cancelled");
  });

  test("workers that died and were not collected yet are no want of room: a create waits for their places", async () => {
    await using cradle = await rig.start();
    const blanks = Array.from({ length: WORKERS }, (_, index) => rig.request(`held${index}`));
    await Promise.all(blanks.map((request) => cradle.blank(rig.blank(request), AbortSignal.timeout(60_000))));
    const own = readlinkSync(`/proc/${cradle.pid}/exe`);
    const workers = childrenOf(cradle.pid).filter((pid) => linkOf(`/proc/${pid}/exe`) === own);
    assert.equal(workers.length, WORKERS);
    const holder = spawn(HOLD_DEAD, workers.map(String), { stdio: ["pipe", "pipe", "inherit"] });
    assert.equal(String((await once(holder.stdout, "data"))[0]), "held\n");
    const request = rig.request("waits1");
    const creating = cradle.create(request, AbortSignal.timeout(60_000));
    // Answered in order: what failed has no worker either.
    await assert.rejects(cradle.create({ ...rig.request("waits2"), layers: [] }, AbortSignal.timeout(60_000)), {
      kind: "Internal",
    });
    holder.stdin.end();
    const { pid } = await creating;
    assert.match(await ask(request, "@facts"), /^pid 1$/m);
    await stop(cradle, pid);
  });

  for (const binary of [undefined, SANITIZED]) {
    test(`workers and children killed at random take nothing down with them${binary ? ", with sanitizers" : ""}`, async () => {
      await using cradle = await rig.start(binary === undefined ? {} : { binary });
      const exits = new Set<number>();
      cradle.onExit(({ pid }) => exits.add(pid));
      let [killed, hit] = [0, 0];
      // On a busy machine creates may be over before the first shot, or shots miss.
      for (let round = 0; round < 30 && (killed === 0 || hit === 0); round++) {
        const requests = Array.from({ length: 60 }, (_, index) => {
          const id = `storm${binary ? "s" : ""}${round}-${index}`;
          return rig.request(id, { cgroups: rig.cgroups(id) });
        });
        exits.clear();
        const storm = new AbortController();
        const storming = killChildren(cradle, storm.signal);
        const outcomes = await Promise.allSettled(
          requests.map((request) => cradle.create(request, AbortSignal.timeout(60_000))),
        );
        storm.abort();
        killed += await storming;
        for (const outcome of outcomes) {
          if (outcome.status === "fulfilled") await ended(cradle, outcome.value.pid, exits);
          else assert.equal(outcome.reason.kind, "Internal", outcome.reason.message);
        }
        const lost = requests.filter((_, index) => outcomes[index]?.status === "rejected");
        hit += lost.length;
        assert.deepEqual(leftovers(cradle, lost), []);
      }
      assert.ok(killed > 0, "nothing was killed");
      assert.ok(hit > 0, "no create was hit");
    });
  }
});

/** Ends an agent that the storm may have hit, and resolves when the launcher has told of it. */
async function ended(cradle: Cradle, pid: number, exits: ReadonlySet<number>): Promise<void> {
  const exit = nextExit(cradle, pid);
  if (exits.has(pid)) return;
  killIfThere(pid);
  await exit;
}

/** Kills processes of creates under way, and an agent when its child became one since it was looked at. Returns how many. */
async function killChildren(cradle: Cradle, until: AbortSignal): Promise<number> {
  const own = readlinkSync(`/proc/${cradle.pid}/exe`);
  let killed = 0;
  for (let turn = 0; !until.aborted; turn++) {
    const children = childrenOf(cradle.pid);
    const victim = children[turn % children.length];
    if (victim !== undefined && linkOf(`/proc/${victim}/exe`) === own && killIfThere(victim)) killed++;
    await new Promise((resolve) => setImmediate(resolve));
  }
  return killed;
}

/** False for one that has been collected since it was looked at. */
function killIfThere(pid: number): boolean {
  try {
    return process.kill(pid, "SIGKILL");
  } catch (error) {
    if (hasCode(error, "ESRCH")) return false;
    throw error;
  }
}
