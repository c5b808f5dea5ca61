import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { MAX_OOM_VICTIMS } from "#core/usage.ts";
import { type LogRecord, OomLog, openKernelLog, parseRecord } from "./oom-log.ts";

const ID = "sn1-aaaaaaaaaaaaaaaa";

/** A log that gives what it is told. */
function fakeLog(records: LogRecord[]) {
  return { read: () => records.splice(0), [Symbol.dispose]: () => undefined };
}

function kill(
  name: string,
  { id = ID, node = "n1", pid = 7, constraint = "CONSTRAINT_MEMCG", rssKiB = 100 } = {},
): LogRecord[] {
  const path = `/dsec/${node}/${id}`;
  const who = `oom-kill:constraint=${constraint},nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=${path},task_memcg=${path},task=${name},pid=${pid},uid=134414339`;
  const size = `Memory cgroup out of memory: Killed process ${pid} (${name}) total-vm:9kB, anon-rss:${rssKiB}kB, file-rss:0kB, shmem-rss:4kB, UID:1 pgtables:1kB oom_score_adj:0`;
  return [who, size].map((text) => ({ atUs: 1_000_000, text }));
}

describe("victims of a lack of memory, from the kernel's log", () => {
  test("are told by sandbox, with name, size and whose memory was full", () => {
    const records = [
      ...kill("python3"),
      ...kill("other", { id: "sn1-bbbbbbbbbbbbbbbb" }),
      ...kill("of another node", { node: "n2" }),
      ...kill("cc1", { constraint: "CONSTRAINT_NONE" }),
    ];
    const log = new OomLog("n1", fakeLog(records));
    assert.deepEqual(
      log.victims(ID).map(({ program, residentBytes, full }) => [program, residentBytes, full]),
      [
        ["python3", 104 * 1024, "sandbox"],
        ["cc1", 104 * 1024, "node"],
      ],
    );
    assert.equal(log.victims("sn1-bbbbbbbbbbbbbbbb").length, 1);
    log.forget(ID);
    assert.deepEqual(log.victims(ID), []);
  });

  test("a program's name cannot forge another record", () => {
    for (const name of ["a,pid=1,uid=0", "x) total-vm:1kB", "task=b,pid=2", "a,task_memcg=/x"]) {
      const log = new OomLog("n1", fakeLog(kill(name)));
      assert.deepEqual(
        log.victims(ID).map(({ program, residentBytes }) => [program, residentBytes]),
        [[name, 104 * 1024]],
        name,
      );
    }
  });

  test("the last ones are kept, and the size belongs to the process that was named", () => {
    const records = Array.from({ length: 40 }, (_, pid) => kill(`p${pid}`, { pid, rssKiB: pid })).flat();
    const log = new OomLog("n1", fakeLog(records));
    const victims = log.victims(ID);
    assert.equal(victims.length, MAX_OOM_VICTIMS);
    assert.deepEqual([victims.at(-1)?.program, victims.at(-1)?.residentBytes], ["p39", 43 * 1024]);
    const cut = new OomLog("n1", fakeLog([...kill("lost", { pid: 1 }).slice(0, 1), ...kill("b", { pid: 2 }).slice(1)]));
    assert.deepEqual(
      cut.victims(ID).map(({ residentBytes }) => residentBytes),
      [0],
    );
  });

  test("any text is a victim or none, never an error", () => {
    fc.assert(
      fc.property(fc.array(fc.string({ unit: "binary", maxLength: 200 })), (texts) => {
        new OomLog("n1", fakeLog(texts.map((text) => ({ atUs: 1, text })))).victims(ID);
        for (const text of texts) parseRecord(text);
      }),
    );
  });
});

test("only records of the kernel count", () => {
  assert.deepEqual(parseRecord("6,123,456,-;text\n SUBSYSTEM=x\n"), { atUs: 456, text: "text" });
  assert.equal(parseRecord("14,123,456,-;text\n"), undefined, "facility 1 is users'");
  assert.equal(parseRecord("text"), undefined);
});

test("the log of this host is read from its start, and then on", (t) => {
  using log = openKernelLog();
  const first = log.read();
  if (first.length === 0) return t.skip("the kernel's log cannot be read here");
  assert.ok(first.every(({ atUs }, index) => index === 0 || atUs >= 0));
  assert.ok(log.read().length < first.length);
});
