import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { type TSchema, Type } from "typebox";
import { CreateSandbox } from "#api/index.ts";
import { SandboxError } from "#core/errors.ts";
import { argumentOf, textOrBytes } from "./bytes.ts";
import { failureOf } from "./failure.ts";
import { parseJson } from "./json.ts";
import { untilAborted } from "./scope.ts";
import { validator } from "./validate.ts";

describe("validator", () => {
  const check = validator(CreateSandbox, "body");

  test("whatever JSON comes, it is taken as it is or refused with a field and a bounded message", () => {
    fc.assert(
      fc.property(
        fc.jsonValue(),
        fc.constantFrom("base", "env", "labels", "resources", "rlimits", "toolkits"),
        (value, key) => {
          for (const candidate of [value, { base: "b", [key]: value }]) {
            try {
              assert.equal(check(candidate), candidate);
            } catch (error) {
              assert.ok(error instanceof SandboxError && error.kind === "InvalidArgument", String(error));
              assert.ok("field" in error.details && error.message.length < 2000, error.message);
            }
          }
        },
      ),
      { numRuns: 500 },
    );
  });

  test("an unknown key comes with the keys that are known there", () => {
    const nested: TSchema = Type.Object({ a: Type.Object({ b: Type.String() }, { additionalProperties: false }) });
    assert.throws(() => validator(nested, "body")({ a: { b: "", c: 1 } }), {
      message: 'a has an unknown key: "c"',
      hint: "known keys: b",
      details: { field: "a.c" },
    });
  });

  test("of a union the bound that was missed is told, not the other alternatives", () => {
    assert.throws(() => check({ base: "b", idleTimeoutMs: 0 }), { message: "idleTimeoutMs must be >= 1; it is 0" });
    assert.throws(() => check({ base: "b", idleTimeoutMs: "x" }), {
      message: 'idleTimeoutMs must be integer or null; it is "x"',
    });
  });
});

describe("bytes", () => {
  test("any argument without NUL survives the way to JSON and back", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 64 }), (raw) => {
        const bytes = raw.map((byte) => (byte === 0 ? 1 : byte));
        const back = argumentOf(JSON.parse(JSON.stringify(textOrBytes(bytes))), "x");
        assert.deepEqual(Buffer.from(back), Buffer.from(bytes));
      }),
    );
  });

  test("the longest argument Linux takes passes, one byte more does not; bytes count, not characters", () => {
    assert.equal(argumentOf("x".repeat(131_071), "x").length, 131_071);
    assert.throws(() => argumentOf("x".repeat(131_072), "x"), { kind: "InvalidArgument" });
    assert.throws(() => argumentOf("ä".repeat(65_536), "x"), { kind: "InvalidArgument", message: /131072 bytes/ });
  });

  test("base64 has one spelling", () => {
    for (const base64 of ["_w==", "/w", "/w=", "/x==", " /w==", "/w==\n"]) {
      assert.throws(() => argumentOf({ base64 }, "x"), { kind: "InvalidArgument" }, base64);
    }
    assert.deepEqual(argumentOf({ base64: "/w==" }, "x"), Buffer.from([0xff]));
  });
});

describe("parseJson", () => {
  test("gives what JSON.parse gives for every JSON text", () => {
    fc.assert(
      fc.property(fc.json(), (text) => {
        const value: unknown = JSON.parse(text);
        if (JSON.stringify(value).isWellFormed() && !/\\ud[89a-f]/i.test(JSON.stringify(value))) {
          assert.deepEqual(parseJson(Buffer.from(text)), value);
        }
      }),
    );
  });

  test("escapes that make a pair stand for one character; half of a pair is refused, in keys too", () => {
    assert.equal(parseJson(Buffer.from('"\\ud83d\\ude00"')), "\u{1f600}");
    for (const text of ['"\\ud83d"', '["\\ude00"]', '{"\\ud83d": 1}', '{"a": {"b": "x\\udc00y"}}']) {
      assert.throws(() => parseJson(Buffer.from(text)), { kind: "InvalidArgument", message: /Unicode/ }, text);
    }
  });
});

describe("failureOf", () => {
  test("what nobody typed is Internal and shows nothing of itself", () => {
    const { status, body } = failureOf(new TypeError("secret"));
    assert.deepEqual([status, body.error.kind, JSON.stringify(body).includes("secret")], [500, "Internal", false]);
    assert.equal(failureOf("thrown text").status, 500);
  });

  test("refusals of the framework keep to the kinds", () => {
    const framework = (code: string, statusCode: number) => Object.assign(new Error("m"), { code, statusCode });
    assert.equal(failureOf(framework("FST_ERR_CTP_BODY_TOO_LARGE", 413)).body.error.kind, "TooLarge");
    assert.equal(failureOf(framework("FST_ERR_CTP_INVALID_MEDIA_TYPE", 415)).status, 400);
    assert.equal(failureOf(framework("FST_ERR_OTHER", 400)).body.error.kind, "InvalidArgument");
    assert.equal(failureOf(framework("FST_ERR_OTHER", 500)).body.error.kind, "Internal");
  });
});

describe("untilAborted", () => {
  test("settles with the work, or with the reason of the signal, whichever comes first", async () => {
    const controller = new AbortController();
    assert.equal(await untilAborted(Promise.resolve(1), controller.signal), 1);
    await assert.rejects(untilAborted(Promise.reject(new Error("x")), controller.signal), { message: "x" });
    const waiting = untilAborted(new Promise(() => undefined), controller.signal);
    controller.abort(new SandboxError("Cancelled", "left"));
    await assert.rejects(waiting, { kind: "Cancelled" });
    await assert.rejects(untilAborted(new Promise(() => undefined), controller.signal), { kind: "Cancelled" });
  });

  test("work that fails after its call was given up disturbs nobody", async () => {
    const controller = new AbortController();
    const { promise, reject } = Promise.withResolvers<never>();
    const waiting = untilAborted(promise, controller.signal);
    controller.abort(new Error("given up"));
    await assert.rejects(waiting, { message: "given up" });
    reject(new Error("late"));
    await new Promise((resolve) => setImmediate(resolve));
  });
});
