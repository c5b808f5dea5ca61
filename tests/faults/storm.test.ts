import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { type Random, seededRandom } from "#control/placement/random.ts";
import { type Command, DsecError, type Sandbox } from "#sdk";
import type { TestNode } from "../support/node.ts";
import { BASE, startNodeWithBase } from "../support/sandbox.ts";

const ACTORS = 8;
const KILLS = 3;
/** Between the start of a node and its death. */
const LIFE_MS = 3_000;
const REPEAT_MS = 100;
const REPEATED_MS = 60_000;
/** How calls end whose node dies: it takes its client along, which then says `Cancelled`. */
const LOST = ["Unavailable", "Cancelled"];

/** What a test believes of a sandbox: that it lives until it is removed, and keeps what was written and what was run. */
interface Believed {
  readonly sandbox: Sandbox;
  readonly words: string[];
  readonly commands: { readonly command: Command; readonly lines: number }[];
}

/** Somebody with sandboxes of their own: a naive model of what the node must have, and random steps on both. */
class Actor {
  readonly live = new Map<string, Believed>();
  readonly #node: TestNode;
  readonly #random: Random;
  readonly #name: number;
  #keys = 0;

  constructor(node: TestNode, name: number) {
    this.#node = node;
    this.#name = name;
    this.#random = seededRandom(name);
  }

  /** One random step. What a killed node took along is asked again of the next one. */
  async step(): Promise<void> {
    const chosen = this.#pick();
    const roll = this.#random();
    if (chosen === undefined || roll < 0.35) await this.#create();
    else if (roll < 0.55) await this.#remove(chosen);
    else if (roll < 0.8) await this.#write(chosen);
    else await this.#start(chosen);
  }

  /** Asserts that every byte is there. */
  async check(): Promise<void> {
    for (const { sandbox, words, commands } of this.live.values()) {
      const here = this.#node.client.sandboxes.use(sandbox.id);
      for (const [index, word] of words.entries()) {
        assert.equal(Buffer.from(await here.files.read(`/tmp/${index}`)).toString(), word);
      }
      for (const { command, lines } of commands) {
        const result = await here.command(command.id).result();
        assert.deepEqual([result.status.cause, result.status.code], ["exited", 3]);
        assert.equal(result.stdoutText, numbers(lines));
      }
    }
  }

  async #create(): Promise<void> {
    const key = this.#key();
    const make = () => this.#node.client.sandboxes.create({ base: BASE }, { idempotencyKey: key });
    const sandbox = await this.#again(make);
    this.live.set(sandbox.id, { sandbox, words: [], commands: [] });
    if (this.#random() < 0.2) assert.equal((await this.#again(make)).id, sandbox.id);
  }

  async #remove({ sandbox: { id } }: Believed): Promise<void> {
    this.live.delete(id);
    const times = this.#random() < 0.3 ? 3 : 1;
    await Promise.all(Array.from({ length: times }, () => this.#again(() => this.#node.client.sandboxes.remove(id))));
  }

  async #write(believed: Believed): Promise<void> {
    const word = `${believed.sandbox.id} ${believed.words.length} `.repeat(1 + Math.floor(this.#random() * 5_000));
    const path = `/tmp/${believed.words.length}`;
    believed.words.push(word);
    await this.#again(() =>
      this.#node.client.sandboxes.use(believed.sandbox.id).files.write(path, new TextEncoder().encode(word)),
    );
  }

  async #start(believed: Believed): Promise<void> {
    const lines = 1 + Math.floor(this.#random() * 5_000);
    const idempotencyKey = this.#key();
    const command = await this.#again(() =>
      this.#node.client.sandboxes.use(believed.sandbox.id).start(`seq ${lines}; exit 3`, { idempotencyKey }),
    );
    believed.commands.push({ command, lines });
  }

  #key(): string {
    this.#keys += 1;
    return `actor ${this.#name}, key ${this.#keys}`;
  }

  #pick(): Believed | undefined {
    const all = [...this.live.values()];
    return all[Math.floor(this.#random() * all.length)];
  }

  async #again<T>(call: () => Promise<T>): Promise<T> {
    for (const end = Date.now() + REPEATED_MS; ; ) {
      try {
        return await call();
      } catch (error) {
        if (!(error instanceof DsecError) || !LOST.includes(error.kind) || Date.now() > end) throw error;
        await sleep(REPEAT_MS);
      }
    }
  }
}

function numbers(count: number): string {
  return Array.from({ length: count }, (_, index) => `${index + 1}\n`).join("");
}

/** Asserts that the node has exactly the sandboxes of the actors, all ready, and of every resource what these need. */
async function checkNode(node: TestNode, actors: readonly Actor[]): Promise<void> {
  const views = await Array.fromAsync(node.client.sandboxes.list());
  const believed = actors.flatMap(({ live }) => [...live.keys()]);
  assert.deepEqual(views.map(({ id }) => id).toSorted(), believed.toSorted());
  for (const view of views) assert.equal(view.state, "ready", view.reason);
  for (const count of await node.client.nodes.resources(node.marks.edge)) {
    const { class: name, expected, found, surplus } = count;
    assert.deepEqual([name, found, surplus], [name, expected, []]);
    assert.equal(expected, ["mounts", "blanks"].includes(name) ? 0 : believed.length, name);
  }
}

test("a node that is killed again and again under load loses, doubles and leaks nothing", async () => {
  await using node = await startNodeWithBase();
  const actors = Array.from({ length: ACTORS }, (_, name) => new Actor(node, name));
  const over = new AbortController();
  const acting = actors.map(async (actor) => {
    while (!over.signal.aborted) await actor.step();
  });
  const storm = Promise.all(acting);
  storm.catch(() => over.abort());
  for (let kills = 0; kills < KILLS && !over.signal.aborted; kills += 1) {
    await sleep(LIFE_MS);
    await node.kill();
    await node.start();
  }
  await sleep(LIFE_MS);
  over.abort();
  await storm;
  await checkNode(node, actors);
  await Promise.all(actors.map((actor) => actor.check()));
  assert.ok(
    actors.some(({ live }) => live.size > 0),
    "nothing was left to look at",
  );
});

test("three hundred creates and removals at once leave what was not removed", async () => {
  await using node = await startNodeWithBase();
  const random = seededRandom(300);
  const kept: string[] = [];
  await Promise.all(
    Array.from({ length: 300 }, async () => {
      const fate = random();
      const sandbox = await node.client.sandboxes.create({ base: BASE });
      if (fate < 0.8) await Promise.all([sandbox.remove(), sandbox.remove()]);
      else kept.push(sandbox.id);
    }),
  );
  const ids = (await Array.fromAsync(node.client.sandboxes.list())).map(({ id }) => id);
  assert.deepEqual(ids.toSorted(), kept.toSorted());
  for (const { class: name, expected, found, surplus } of await node.client.nodes.resources(node.marks.edge)) {
    assert.deepEqual([name, found, surplus], [name, expected, []]);
  }
});
