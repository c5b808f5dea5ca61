import assert from "node:assert/strict";
import { test } from "node:test";
import { GuestKills } from "./guest-kills.ts";

const who = (number: number, pid: number, cgroup = "/sandbox") =>
  `6,${number},1000000,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/sandbox,task_memcg=${cgroup},task=tail,pid=${pid},uid=0`;
const size = (number: number, pid: number) =>
  `3,${number},1000001,-;Memory cgroup out of memory: Killed process ${pid} (tail) total-vm:9kB, anon-rss:4kB, file-rss:0kB, shmem-rss:0kB, UID:0`;

/** A guest whose kernel has this log, and how often it was asked. */
function guestWith(...log: string[]) {
  const guest = {
    asked: 0,
    log,
    async nextKill(after: number) {
      guest.asked += 1;
      const record = guest.log.find((one) => Number(one.split(",")[1]) > after);
      return record === undefined ? undefined : { record, sinceBootMs: 2_000 };
    },
  };
  return guest;
}

test("victims are those of the sandbox; the log is read when there were more than before", async () => {
  const guest = guestWith(who(5, 7), size(6, 7), who(7, 8, "/other"), size(8, 8));
  const kills = new GuestKills();
  assert.deepEqual(await kills.victims(guest, 0), []);
  assert.equal(guest.asked, 0);
  const both = await Promise.all([kills.victims(guest, 1), kills.victims(guest, 1)]);
  for (const victims of both) {
    assert.deepEqual(
      victims.map(({ program, residentBytes, full }) => [program, residentBytes, full]),
      [["tail", 4096, "sandbox"]],
    );
  }
  const { asked } = guest;
  await kills.victims(guest, 1);
  assert.equal(guest.asked, asked);
  guest.log.push(who(9, 9), size(10, 9));
  assert.equal((await kills.victims(guest, 2)).length, 2);
});

test("a guest that tells lies or goes on for ever is heard for a while", async () => {
  let number = 0;
  const endless = { nextKill: async () => ({ record: who(++number, number), sinceBootMs: 0 }) };
  assert.equal((await new GuestKills().victims(endless, 1)).length, 16);
  assert.equal(number, 64);
  for (const record of ["", "x", who(0, 1), "6,-3,1,-;oom-kill:", `6,${"9".repeat(40)},1,-;`]) {
    let asked = 0;
    const liar = {
      nextKill: async () => {
        asked += 1;
        return { record, sinceBootMs: Number.NaN };
      },
    };
    assert.deepEqual(await new GuestKills().victims(liar, 1), []);
    assert.equal(asked, 1);
  }
  const broken = { nextKill: () => Promise.reject(new Error("gone")) };
  const kills = new GuestKills();
  for (let tries = 0; tries < 2; tries += 1) await assert.rejects(kills.victims(broken, 1), /gone/);
});
