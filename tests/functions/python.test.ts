import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { FunctionReply } from "#sdk";
import { importDebian, whyNoDebian } from "../support/debian.ts";
import { startNode, type TestNode } from "../support/node.ts";
import { judgeAll } from "./judge.ts";
import { PYTHON } from "./programs.ts";

/** The others are run by `./dsec test functions`. */
const QUICK = /sum|unicode|floats|exit status|exception|syntax|recursion|memory in bounds|output|daemon|kills itself/;
const why = whyNoDebian();

let node: TestNode;
before(async () => {
  if (why !== undefined) return;
  node = await startNode();
  // The base that the runtime names; `./dsec test functions` makes it as the runtime says.
  await importDebian(node.client, "functions-python");
});
after(() => node?.[Symbol.asyncDispose]());

const python = (code: string): Promise<FunctionReply> => node.client.functions.invoke({ runtime: "python", code });

test("programs get their verdicts from forks of a warm interpreter", { skip: why }, async () => {
  await judgeAll(
    node.client,
    PYTHON.filter(({ name }) => QUICK.test(name)),
    1,
  );
});

test("a traceback begins with the program", { skip: why }, async () => {
  const { run } = await python("def f():\n  1 / 0\nf()");
  assert.match(String(run?.stderr), /^Traceback .*\n {2}File "main.py", line 3/);
});

test("a fork finds a process of its own: user, streams by name, randomness, arguments", { skip: why }, async () => {
  const code =
    "import os, random, sys\nprint(os.getuid() >= 20000, open('/dev/stdin').read() == '', sys.argv, __name__)\nprint(random.random())";
  const [first, second] = [await python(code), await python(code)].map(({ run }) => String(run?.stdout).split("\n"));
  assert.equal(first?.[0], "True True ['main.py'] __main__");
  assert.notEqual(first?.[1], second?.[1]);
});

test("a fork cannot get its rights back, nor reach the fork server", { skip: why }, async () => {
  const code = `
import ctypes, os, socket
libc = ctypes.CDLL(None, use_errno=True)
print([name for name in ("CapEff", "CapPrm", "NoNewPrivs", "Seccomp") for line in open("/proc/self/status") if line.startswith(name) and print(line, end="")])
print(libc.unshare(0x10000000), libc.setns(0, 0), libc.mount(b"none", b"/tmp", b"tmpfs", 0, None))
try:
  os.setuid(0)
except OSError as error:
  print(error.errno)
try:
  socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect("\\0dsec-fork-server")
except OSError as error:
  print(error.errno)
print([fd for fd in os.listdir("/proc/self/fd") if int(fd) > 3])
`;
  const { run } = await python(code);
  const lines = String(run?.stdout).split("\n");
  assert.deepEqual(lines.slice(0, 4), [
    "CapEff:\t0000000000000000",
    "CapPrm:\t0000000000000000",
    "NoNewPrivs:\t1",
    "Seccomp:\t2",
  ]);
  assert.deepEqual(
    lines.slice(6, 9).map((line) => line.trim()),
    ["-1 -1 -1", "1", "111"],
  );
});

test("what a call changes in its interpreter, or tries to change for all, the next one does not find", {
  skip: why,
}, async () => {
  const hostile = `
import builtins, ctypes, json, os, random, sys
os.environ["LEFT"] = "behind"
json.dumps = sum = None
builtins.left = "behind"
random.seed(1)
for path in (json.__file__, sys.executable, "/etc/passwd"):
  try:
    open(path, "ab")
  except OSError as error:
    print(error.errno)
print([ctypes.CDLL(None, use_errno=True).ptrace(16, pid, 0, 0) for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if pid != os.getpid()])
os.kill(-1, 9)
`;
  const look = `
import builtins, json, os
print(json.dumps([hasattr(builtins, "left"), "LEFT" in os.environ, os.listdir("/tmp")]))
`;
  for (let round = 0; round < 3; round += 1) {
    const { run } = await python(hostile);
    const [first, second, third, traced] = String(run?.stdout).split("\n");
    // Read-only, or somebody else's: either will do.
    assert.ok(
      [first, second, third].every((errno) => errno === "30" || errno === "13"),
      String(run?.stdout),
    );
    assert.match(traced ?? "", /^\[(-1(, -1)*)?\]$/);
    assert.equal((await python(look)).run?.stdout, "[false, false, []]\n");
  }
});
