import assert from "node:assert/strict";
import { IncomingMessage, ServerResponse } from "node:http";
import { Socket } from "node:net";
import { type TestContext, test } from "node:test";
import { CallScope } from "./scope.ts";

const LIMIT_MS = 1_000;

/** A call with a limit, and a clock for it. The clock of node:test knows no timers that start again. */
function timedScope(context: TestContext): { readonly scope: CallScope; pass(ms: number): void } {
  let nowMs = 0;
  let dueMs = 0;
  let expire = () => undefined;
  context.mock.method(globalThis, "setTimeout", (action: () => undefined, afterMs: number) => {
    const refresh = () => {
      dueMs = nowMs + afterMs;
    };
    expire = action;
    refresh();
    return { refresh, unref: () => undefined };
  });
  const request = new IncomingMessage(new Socket());
  request.headers["dsec-timeout-ms"] = String(LIMIT_MS);
  const scope = new CallScope(request, new ServerResponse(request), undefined);
  const pass = (ms: number) => {
    nowMs += ms;
    if (nowMs >= dueMs) expire();
  };
  return { scope, pass };
}

test("fixed time limits on big transfers: what moves has its whole limit again, however long it takes in all", (context) => {
  const { scope, pass } = timedScope(context);
  for (let piece = 0; piece < 50; piece++) {
    pass(LIMIT_MS - 1);
    scope.progress();
    assert.equal(scope.signal.aborted, false, `piece ${piece}`);
  }
  pass(LIMIT_MS);
  assert.equal(scope.signal.reason.kind, "DeadlineExceeded");
});
