import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { LayerDigest, SandboxSpec } from "#core/sandbox.ts";
import { checkSpec } from "./check.ts";
import { diskShape } from "./disk.ts";
import { planDisks } from "./disks.ts";
import { guestRequest } from "./request.ts";
import { machineMemoryMiB, processorsOf } from "./sizes.ts";
import { aSpec as spec } from "./test-support/spec.ts";

const MIB = 1024 * 1024;

const ANYTHING = { check: () => {} };

describe("what a microVM cannot give is refused by name", () => {
  const refused: Readonly<Record<string, readonly [SandboxSpec, string, RegExp]>> = {
    "memory below what its kernel needs": [spec({ memoryMiB: 8 }), "InvalidArgument", /memoryMiB 8/],
    "500 processors": [spec({ cpus: 500 }), "InvalidArgument", /cpus 500/],
    "no processes": [spec({ pids: 0 }), "InvalidArgument", /pids 0/],
    "a disk without room": [spec({ diskMiB: 1 }), "InvalidArgument", /diskMiB 1/],
    swap: [spec({ swapMiB: 64 }), "FailedPrecondition", /swap/],
    "a name that is none": [spec({}, { hostname: "-" }), "InvalidArgument", /hostname/],
    "more descriptors than its kernel hands out": [
      spec({}, { rlimits: { nofile: { soft: 1, hard: 2 ** 30 } } }),
      "FailedPrecondition",
      /nofile/,
    ],
    "nothing to start from": [spec({}, { layers: [] }), "InvalidArgument", /layer/],
  };
  for (const [what, [given, kind, message]] of Object.entries(refused)) {
    test(what, () => assert.throws(() => checkSpec(given, ANYTHING), { kind, message }));
  }

  test("the defaults are taken", () => checkSpec(spec(), ANYTHING));
});

describe("sizes of a machine", () => {
  test("memory is the sandbox's and the guest's own, in steps", () => {
    assert.deepEqual(
      [16, 32, 33, 128, 928, 929, 5_000].map((memoryMiB) => machineMemoryMiB(spec({ memoryMiB }))),
      [128, 128, 256, 256, 1_024, 2_048, 5_120],
    );
  });

  test("processors are the limit rounded up", () => {
    assert.deepEqual(
      [0.1, 1, 1.5, 4].map((cpus) => processorsOf(spec({ cpus }))),
      [1, 1, 2, 4],
    );
  });

  test("a disk has room for what may be written and for its file system", () => {
    assert.ok(diskShape(spec({ diskMiB: 100 })).bytes > 105 * MIB);
    assert.ok(diskShape(spec({ diskMiB: undefined })).bytes > 16 * 1024 * MIB);
  });
});

describe("the disks of a machine", () => {
  test("are the upper and each file of the layers once, and places that are empty", () => {
    const plan = planDisks(
      [
        ["/a.meta", "/blob"],
        ["/b.meta", "/other", "/blob"],
      ],
      "/upper",
    );
    const [upper, ...rest] = plan.disks;
    assert.deepEqual(upper, { serial: plan.upper, file: "/upper", access: "write" });
    const fileOf = (serial: string) => rest.find((disk) => disk.serial === serial)?.file;
    assert.deepEqual(
      plan.layers.map((parts) => parts.map(fileOf)),
      [
        ["/a.meta", "/blob"],
        ["/b.meta", "/other", "/blob"],
      ],
    );
    assert.equal(rest.filter(({ file }) => file !== undefined).length, 4);
    assert.ok(rest.every(({ access }) => access === "read"));
  });

  test("are as many as for other layers, so that one template fits both", () => {
    assert.equal(planDisks([["/a"]], "/upper").disks.length, planDisks([["/a", "/b"], ["/c"]], "/upper").disks.length);
  });

  test("are refused when there are more than places", () => {
    const files = Array.from({ length: 216 }, (_, number) => `/${number}`);
    assert.equal(planDisks([files.slice(1)], "/upper").disks.length, 216);
    assert.throws(() => planDisks([files], "/upper"), { kind: "FailedPrecondition" });
  });
});

test("the launcher of a machine is asked for the sandbox's limits and every layer, in order", () => {
  const layers = [1, 2, 3].map((digit) => `sha256:${String(digit).repeat(64)}` as LayerDigest);
  const request = guestRequest(spec({ memoryMiB: 64, pids: 10 }, { layers })).toString("latin1");
  for (const text of ["/run/layers/0\0", "memory.max\0", `${64 * MIB}\0`, "pids.max\0", "11\0"]) {
    assert.ok(request.includes(text), text);
  }
  const order = layers.map((_, number) => request.indexOf(`/run/layers/${number}\0`));
  assert.deepEqual(
    order,
    order.toSorted((a, b) => a - b),
  );
});
