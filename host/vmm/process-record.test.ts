import assert from "node:assert/strict";
import { test } from "node:test";
import { asProcess, parseProcess } from "./process-record.ts";

test("a record names a process, and what is none names nothing", () => {
  assert.deepEqual(parseProcess('{"pid":12,"startTicks":34}'), { pid: 12, startTicks: 34 });
  for (const text of ["", '{"pid":1', "null"]) assert.equal(parseProcess(text), undefined);
  for (const value of [{}, { pid: 1 }, { pid: "1", startTicks: 2 }]) assert.equal(asProcess(value), undefined);
});
