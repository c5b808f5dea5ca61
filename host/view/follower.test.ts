import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { test } from "node:test";
import { Follower } from "./follower.ts";

test("whoever waits for the end of a process that does not end by itself gets it, also with nothing else to do", () => {
  const program = `
    import { spawn } from "node:child_process";
    import { Follower } from ${JSON.stringify(new URL("./follower.ts", import.meta.url).href)};
    const follower = new Follower({
      spawn: () => spawn("sleep", ["600"], { stdio: "ignore" }),
      started: () => {},
      followed: () => {},
    });
    follower.start();
    await follower.end(1);
    process.stdout.write("ended");
  `;
  assert.equal(
    execFileSync(process.execPath, ["--input-type=module", "--eval", program], { encoding: "utf8" }),
    "ended",
  );
});

test("another process follows one that ends, until nobody wants them", async () => {
  const started: number[] = [];
  const third = Promise.withResolvers<void>();
  const follower = new Follower({
    spawn: () => spawn(started.length < 2 ? "true" : "cat", { stdio: ["pipe", "ignore", "ignore"] }),
    started: (pid) => started.push(pid) === 3 && third.resolve(),
    followed: () => undefined,
  });
  follower.start().ref();
  // Nothing else keeps this process alive between one and the next.
  const alive = setInterval(() => undefined, 1_000);
  await third.promise;
  assert.equal(follower.pid, started[2]);
  await follower.end(0);
  clearInterval(alive);
  assert.deepEqual([new Set(started).size, started.length], [3, 3]);
});
