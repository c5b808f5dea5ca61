import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { SandboxError } from "#core/errors.ts";
import { parseEdgeId } from "#core/ids.ts";
import { type Candidate, type Demand, fullness, rank } from "./placement.ts";
import { seededRandom } from "./random.ts";

const anyLoad = fc.record({
  cpus: fc.integer({ min: 0, max: 64 }),
  memoryMiB: fc.integer({ min: 0, max: 65_536 }),
  sandboxes: fc.integer({ min: 0, max: 100 }),
});
const anyCluster = fc
  .array(
    fc.record({
      lost: fc.boolean(),
      backends: fc.subarray(["container", "microvm"] as const),
      capacity: anyLoad,
      promised: anyLoad,
      recent: anyLoad,
    }),
    { maxLength: 12 },
  )
  .map((nodes) => nodes.map((node, index) => candidate({ edge: `e${index}`, ...node })));
const anyDemand: fc.Arbitrary<Demand> = fc.record({
  backend: fc.constantFrom("container" as const, "microvm" as const),
  cpus: fc.integer({ min: 1, max: 64 }),
  memoryMiB: fc.integer({ min: 1, max: 65_536 }),
});

interface Shape extends Pick<Candidate, "lost" | "recent"> {
  readonly edge: string;
  readonly backends: Candidate["info"]["backends"] | readonly ("container" | "microvm")[];
  readonly capacity: Candidate["info"]["capacity"];
  readonly promised: Candidate["info"]["promised"];
}

function candidate({ edge, lost, recent, backends, capacity, promised }: Shape): Candidate {
  const sizes = { capacity, promised, sandboxes: promised.sandboxes, creating: 0 };
  return { lost, recent, info: { edge: parseEdgeId(edge), version: "1", startedAtMs: 0, backends, ...sizes } };
}

const NONE = { cpus: 0, memoryMiB: 0, sandboxes: 0 };
const SIZE = { cpus: 8, memoryMiB: 8192, sandboxes: 100 };

function node(edge: string, change: Partial<Shape> = {}): Candidate {
  return candidate({
    edge,
    lost: false,
    recent: NONE,
    backends: ["container"],
    capacity: SIZE,
    promised: NONE,
    ...change,
  });
}

const SMALL: Demand = { backend: "container", cpus: 1, memoryMiB: 512 };

test("the order holds exactly the nodes that live, have the backend and could hold the demand, each once", () => {
  fc.assert(
    fc.property(anyCluster, anyDemand, fc.integer(), (cluster, demand, seed) => {
      const able = cluster.filter(
        ({ lost, info }) =>
          !lost &&
          info.backends.includes(demand.backend) &&
          demand.cpus <= info.capacity.cpus &&
          demand.memoryMiB <= info.capacity.memoryMiB,
      );
      const order = orderOrKind(cluster, demand, seed);
      if (able.length === 0) return typeof order === "string";
      assert.ok(typeof order !== "string");
      assert.deepEqual([...order].sort(), able.map(({ info }) => info.edge).sort());
      return true;
    }),
  );
});

test("a node with room never comes after one without", () => {
  fc.assert(
    fc.property(anyCluster, anyDemand, fc.integer(), (cluster, demand, seed) => {
      const order = orderOrKind(cluster, demand, seed);
      if (typeof order === "string") return;
      const room = order.map((edge) => {
        const found = cluster.find(({ info }) => info.edge === edge);
        assert.ok(found !== undefined);
        const { capacity, promised } = found.info;
        return (
          promised.cpus + found.recent.cpus + demand.cpus <= capacity.cpus &&
          promised.memoryMiB + found.recent.memoryMiB + demand.memoryMiB <= capacity.memoryMiB &&
          promised.sandboxes + found.recent.sandboxes < capacity.sandboxes
        );
      });
      assert.ok(!room.includes(false) || room.lastIndexOf(true) < room.indexOf(false));
    }),
  );
});

test("the same seed gives the same order", () => {
  fc.assert(
    fc.property(anyCluster, anyDemand, fc.integer(), (cluster, demand, seed) => {
      assert.deepEqual(orderOrKind(cluster, demand, seed), orderOrKind(cluster, demand, seed));
    }),
  );
});

test("of two nodes the emptier is asked first, and own recent placements count", () => {
  const busy = node("busy", { promised: { ...NONE, memoryMiB: 4096 } });
  for (let seed = 0; seed < 20; seed++) {
    assert.equal(rank(SMALL, [busy, node("idle")], seededRandom(seed))[0], "idle");
    const idle = node("idle", { recent: { ...NONE, memoryMiB: 5000 } });
    assert.equal(rank(SMALL, [busy, idle], seededRandom(seed))[0], "busy");
  }
});

test("a thousand placements on ten nodes stay within a small distance of even", () => {
  const random = seededRandom(7);
  const counts = new Map<string, number>();
  for (let n = 0; n < 1000; n++) {
    const cluster = Array.from({ length: 10 }, (_, index) => {
      const placed = counts.get(`e${index}`) ?? 0;
      return node(`e${index}`, {
        capacity: { cpus: 1e6, memoryMiB: 1e9, sandboxes: 1e6 },
        recent: { ...NONE, sandboxes: placed },
      });
    });
    const [edge] = rank(SMALL, cluster, random);
    assert.ok(edge !== undefined);
    counts.set(edge, (counts.get(edge) ?? 0) + 1);
  }
  const all = [...counts.values()];
  assert.ok(Math.max(...all) - Math.min(...all) <= 10, `${all}`);
});

test("why nothing can take it has three answers", () => {
  assert.equal(orderOrKind([], SMALL, 1), "Unavailable");
  assert.equal(orderOrKind([node("a", { lost: true })], SMALL, 1), "Unavailable");
  assert.equal(orderOrKind([node("a")], { ...SMALL, backend: "microvm" }, 1), "FailedPrecondition");
  assert.equal(orderOrKind([node("a")], { ...SMALL, memoryMiB: 8193 }, 1), "InvalidArgument");
  assert.throws(() => rank({ ...SMALL, memoryMiB: 9000 }, [node("a")], seededRandom(1)), /memoryMiB is 9000.*8192/);
  assert.throws(() => rank({ ...SMALL, cpus: 9 }, [node("a")], seededRandom(1)), /cpus is 9.*has 8/);
});

test("fullness is that of the scarcest resource, and a node without any is full", () => {
  assert.equal(fullness(node("a", { promised: { cpus: 4, memoryMiB: 2048, sandboxes: 10 } })), 0.5);
  assert.equal(fullness(node("a", { capacity: NONE })), Number.POSITIVE_INFINITY);
});

test("random numbers are in [0, 1) and differ between seeds", () => {
  const [one, two] = [seededRandom(1), seededRandom(2)];
  const numbers = Array.from({ length: 1000 }, () => one());
  assert.ok(numbers.every((number) => number >= 0 && number < 1));
  assert.notEqual(numbers[0], two());
  const mean = numbers.reduce((sum, number) => sum + number, 0) / numbers.length;
  assert.ok(mean > 0.45 && mean < 0.55);
});

function orderOrKind(cluster: readonly Candidate[], demand: Demand, seed: number): readonly string[] | string {
  try {
    return rank(demand, cluster, seededRandom(seed));
  } catch (error) {
    assert.ok(error instanceof SandboxError);
    return error.kind;
  }
}
