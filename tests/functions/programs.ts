import type { FunctionReply, InvokeFunction } from "#sdk";

/** A program with the verdict that it must get, on an idle node and on a busy one. */
export interface Program {
  readonly name: string;
  readonly call: InvokeFunction;
  readonly status: FunctionReply["status"];
  /** What it prints, where that is part of the verdict. */
  readonly stdout?: string;
}

/** What a program says besides its code. */
export type More = Partial<Omit<InvokeFunction, "runtime" | "code">>;

/** Small, so that a run of all of them ends; every program is far on one side of each. */
const LIMITS = { compileMs: 60_000, runMs: 1_000, memoryMiB: 64, outputBytes: 65_536, pids: 32 };
/** Of runtimes that need more than the smallest program. */
const RUNTIME_LIMITS: Readonly<Record<string, Partial<typeof LIMITS>>> = {
  node: { memoryMiB: 256 },
  go: { pids: 64 },
  java: { memoryMiB: 256, pids: 64, runMs: 2_000 },
};
const LARGE = 50 * 1024 * 1024;
/** As much as a call may give back of one stream. */
const LARGE_OUTPUT = 32 * 1024 * 1024;

/** One with small limits, unless it says others. */
export function program(
  runtime: string,
  name: string,
  code: string,
  expected: Omit<Program, "name" | "call">,
  more: More = {},
): Program {
  const limits = { ...LIMITS, ...RUNTIME_LIMITS[runtime], ...more.limits };
  return { name: `${runtime}: ${name}`, call: { runtime, code, ...more, limits }, ...expected };
}

const ok = (stdout: string) => ({ status: "ok", stdout }) as const;
const fails = { status: "runtime-error" } as const;
const late = { status: "time-limit" } as const;
const fat = { status: "memory-limit" } as const;
const loud = { status: "output-limit" } as const;
const refused = { status: "compile-error" } as const;

/** How programs may be expected to end. */
export const ENDS = { ok, fails, late, fat, loud, refused };

const python = (name: string, code: string, expected: Omit<Program, "name" | "call">, more?: More) =>
  program("python", name, code, expected, more);
const bash = (name: string, code: string, expected: Omit<Program, "name" | "call">, more?: More) =>
  program("bash", name, code, expected, more);
const c = (name: string, code: string, expected: Omit<Program, "name" | "call">, more?: More) =>
  program("c", name, code, expected, more);
const cpp = (name: string, code: string, expected: Omit<Program, "name" | "call">, more?: More) =>
  program("c++", name, code, expected, more);
const node = (name: string, code: string, expected: Omit<Program, "name" | "call">, more?: More) =>
  program("node", name, code, expected, more);

/** Interpreted by the fork server. */
export const PYTHON: readonly Program[] = [
  python("sum", "print(sum(map(int, input().split())))", ok("6\n"), { stdin: "1 2 3\n" }),
  python("unicode", "print(input()[::-1])", ok("界世 ,ßäG\n"), { stdin: "Gäß, 世界\n" }),
  python("bytes that are no text", "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())", ok("a\tb\n"), {
    stdin: "a\tb\n",
  }),
  python("floats", "print(0.1 + 0.2, 1e308 * 10, float('nan'), -0.0)", ok("0.30000000000000004 inf nan -0.0\n")),
  python("big integers", "print(2 ** 200)", ok(`${2n ** 200n}\n`)),
  python("exit status", "raise SystemExit(3)", fails),
  python("exception", "print(1 / 0)", fails),
  python("syntax error", "def f(:\n  pass", fails),
  python("deep recursion", "def f(n):\n  return f(n + 1)\nf(0)", fails),
  python("deep recursion in bounds", "def f(n):\n  return n and f(n - 1)\nprint(f(900))", ok("0\n")),
  python("endless loop", "while True: pass", late),
  python("sleeper", "import time; time.sleep(1000)", late, { limits: { runMs: 100 } }),
  python("waits for input that ends", "import sys; print(len(sys.stdin.read()))", ok("0\n")),
  python("busy children", "import os\nfor _ in range(4):\n  if os.fork() == 0: break\nwhile True: pass", late),
  python("memory", "a = [bytearray(1 << 20) for _ in range(1000)]", fat),
  python("memory of a child", "import os\nif os.fork() == 0:\n  a = bytearray(1 << 30)\n  os._exit(0)\nos.wait()", fat),
  python("memory in files", "open('/tmp/a', 'wb').write(bytes(200 << 20))", fat),
  python("memory in /dev/shm", "f = open('/dev/shm/a', 'wb')\nfor _ in range(200): f.write(bytes(1 << 20))", fat),
  python("memory in bounds", "a = bytearray(20 << 20); print(len(a))", ok(`${20 << 20}\n`)),
  python("flood", "while True: print('x' * 1000)", loud),
  python("flood of stderr", "import sys\nwhile True: sys.stderr.write('x' * 1000)", loud),
  python("output at its limit", "print('x' * 65535)", ok(`${"x".repeat(65_535)}\n`)),
  python("output over its limit by one", "print('x' * 65536)", loud),
  python("fork bomb", "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass", late),
  python(
    "thread bomb",
    "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(1,)).start()",
    fails,
  ),
  python("large input", "import sys; print(len(sys.stdin.buffer.read()))", ok(`${LARGE}\n`), {
    stdin: "x".repeat(LARGE),
    limits: { memoryMiB: 256, runMs: 10_000 },
  }),
  python(
    "large output",
    `import sys; sys.stdout.write('y' * ${LARGE_OUTPUT})`,
    { status: "ok" },
    {
      limits: { memoryMiB: 256, outputBytes: LARGE_OUTPUT, runMs: 10_000 },
    },
  ),
  python(
    "threads and processes",
    "from multiprocessing import Pool\nwith Pool(2) as p: print(p.map(abs, [-1, -2]))",
    ok("[1, 2]\n"),
    {
      limits: { runMs: 5_000 },
    },
  ),
  python("kills itself", "import os; os.kill(os.getpid(), 11)", fails),
  python(
    "leaves a daemon",
    "import os, time\nif os.fork() == 0:\n  os.setsid()\n  time.sleep(1000)\nprint('left')",
    ok("left\n"),
  ),
];

/** Started at the call. */
export const SHELL: readonly Program[] = [
  bash("reads", "read a b; echo $((a * b))", ok("42\n"), { stdin: "6 7\n" }),
  bash("exit status", "exit 7", fails),
  bash("no such program", "no-such-program", fails),
  bash("endless loop", "while :; do :; done", late),
  bash("sleeper", "sleep 1000", late, { limits: { runMs: 100 } }),
  bash("fork bomb", "f() { f | f & }; while :; do f; done", { status: "time-limit" }, { limits: { pids: 16 } }),
  bash("flood", "yes", loud),
  bash("reads randomness for ever", "cat /dev/urandom", loud),
  bash("fills its files", "head -c 300M /dev/zero > /tmp/a", fat),
  bash("background jobs", "sleep 1000 & sleep 1000 & disown -a; echo done", ok("done\n")),
];

/** Compiled once for all their runs. */
export const NATIVE: readonly Program[] = [
  c("sum", '#include <stdio.h>\nint main(){int a,b;scanf("%d %d",&a,&b);printf("%d\\n",a+b);}', ok("5\n"), {
    stdin: "2 3",
  }),
  c(
    "floats",
    '#include <stdio.h>\n#include <math.h>\nint main(){double z=0;printf("%g %g %.17g\\n",1/z,-1/z,0.1);}',
    ok("inf -inf 0.10000000000000001\n"),
  ),
  c("segmentation fault", "int main(){volatile int*p=0;return *p;}", fails),
  c("abort", "#include <stdlib.h>\nint main(){abort();}", fails),
  c("division by zero", "int main(){volatile int a=1,z=0;return a/z;}", fails),
  c("exit status", "int main(){return 9;}", fails),
  c("endless loop", "int main(){for(volatile int i=0;;i++);}", late),
  c("endless recursion", "int f(volatile int n){return n?f(n+1)+1:0;}int main(){return f(1);}", fails),
  c("memory", "#include <stdlib.h>\n#include <string.h>\nint main(){for(;;)memset(malloc(1<<20),1,1<<20);}", fat),
  c(
    "allocates and does not touch",
    '#include <stdlib.h>\n#include <stdio.h>\nint main(){puts(malloc(1ul<<33)?"got":"none");}',
    { status: "ok" },
  ),
  c("flood", '#include <stdio.h>\nint main(){for(;;)puts("flood");}', loud),
  c("fork bomb", "#include <unistd.h>\nint main(){for(;;)fork();}", late),
  c("sleeper", "#include <unistd.h>\nint main(){for(;;)pause();}", late, { limits: { runMs: 100 } }),
  c("syntax error", "int main( {", refused),
  c("no such header", "#include <no-such.h>\nint main(){}", refused),
  c("nothing to link", "int f(void);int main(){return f();}", refused),
  c("reads randomness while compiling", '#include "/dev/urandom"\nint main(){}', refused, {
    limits: { compileMs: 3_000 },
  }),
  c("reads an endless file while compiling", '#include "/dev/zero"\nint main(){}', refused, {
    limits: { compileMs: 3_000 },
  }),
  c("huge array at compile time", "char a[1ul<<40]={1};int main(){return a[0];}", refused, {
    limits: { compileMs: 3_000 },
  }),
  cpp(
    "containers",
    "#include <iostream>\n#include <map>\n#include <string>\nint main(){std::map<std::string,int>m;std::string s;while(std::cin>>s)m[s]++;for(auto&[k,v]:m)std::cout<<k<<v<<' ';}",
    ok("a2 b1 "),
    { stdin: "a b a" },
  ),
  cpp("exception", '#include <stdexcept>\nint main(){throw std::runtime_error("x");}', fails),
  cpp("template bomb", "template<int N>struct A{using T=typename A<N+1>::T;};int main(){A<0>::T x;}", refused),
  cpp(
    "constant expression bomb",
    "constexpr long f(int n){return n<2?n:f(n-1)+f(n-2);}static_assert(f(60)>0);int main(){}",
    refused,
    { limits: { compileMs: 5_000 } },
  ),
  cpp("memory", "#include <vector>\nint main(){std::vector<long>v;for(;;)v.push_back(v.size());}", fat),
];

/** Started before its call. */
export const NODE: readonly Program[] = [
  node(
    "sum",
    "const [a, b] = require('fs').readFileSync(0, 'utf8').split(' ').map(Number); console.log(a + b)",
    ok("5\n"),
    { stdin: "2 3" },
  ),
  node("floats", "console.log(0.1 + 0.2, 2 ** 53 + 1)", ok("0.30000000000000004 9007199254740992\n")),
  node(
    "promises",
    "setTimeout(() => console.log('late'), 10); Promise.resolve().then(() => console.log('soon'))",
    ok("soon\nlate\n"),
  ),
  node("exception", "throw new Error('x')", fails),
  node("rejection", "Promise.reject(new Error('x'))", fails),
  node("syntax error", "function (", fails),
  node("deep recursion", "(function f() { f(); })()", fails),
  node("endless loop", "for (;;);", late),
  node("waits for ever", "setInterval(() => {}, 1000)", late, { limits: { runMs: 200 } }),
  node("flood", "for (;;) require('fs').writeSync(1, 'flood\\n'.repeat(100))", loud),
  node("memory outside of its heap", "const a = []; for (;;) a.push(Buffer.alloc(1 << 24, 1))", fat, {
    limits: { runMs: 10_000 },
  }),
];
