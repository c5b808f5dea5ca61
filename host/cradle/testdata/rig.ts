import { execFileSync } from "node:child_process";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmdirSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { text } from "node:stream/consumers";
import { type BlankRequest, type Cradle, type CradleCgroup, type CradleRequest, startCradle } from "../client.ts";

const SOURCES = resolve(import.meta.dirname, "..");
const BUILD = resolve(SOURCES, "../../.build");
const HIERARCHIES = ["cpu", "memory", "pids", "unified"].map((name) => `/sys/fs/cgroup/${name}`);

/** A place on this machine with everything that sandboxes of tests need. Disposal removes all of it. */
export interface Rig extends Disposable {
  readonly dir: string;
  /** Base and a second layer, mounted. */
  readonly layers: readonly string[];
  readonly agentBinary: string;
  start(options?: { readonly overlayMode?: "fd" | "paths"; readonly binary?: string }): Promise<Cradle>;
  /** A request that works, with its directories made. */
  request(id: string, changes?: Partial<CradleRequest>): CradleRequest;
  /** The blank for such a request: at another socket. */
  blank(request: CradleRequest): BlankRequest;
  /** One cgroup in each hierarchy of this machine. */
  cgroups(id: string): readonly CradleCgroup[];
  /** Mounts one more layer made of these files: a string is a file, `->x` a link, `/` a directory. */
  layer(name: string, files: Readonly<Record<string, string>>): string;
}

/** Builds the launcher and its helpers, then two EROFS layers. */
export function makeRig(): Rig {
  // Test files run at once, so one builds and the others wait.
  execFileSync("flock", [SOURCES, "make", "-s", "-C", SOURCES, "all", "asan", "testdata"]);
  const dir = mkdtempSync(join(tmpdir(), "dsec-cradle-"));
  const name = dir.slice(dir.lastIndexOf("/") + 1);
  const mounts: string[] = [];
  const roots = cgroupRoots().map((root) => join(root, name));
  for (const root of roots) mkdirSync(root);
  const layer = (label: string, fill: (tree: string) => void) => {
    const target = mountLayer(dir, label, fill);
    mounts.push(target);
    return target;
  };
  const layers = [layer("base", fillBase), layer("top", (tree) => writeFiles(tree, { "etc/top": "from the top\n" }))];
  return {
    dir,
    layers,
    agentBinary: join(BUILD, "cradle-probe-agent"),
    start: (options = {}) =>
      startCradle({
        binary: options.binary ?? join(BUILD, "dsec-cradle"),
        agentBinary: join(BUILD, "cradle-probe-agent"),
        log: (line) => process.stderr.write(`${line}\n`),
        ...(options.overlayMode === undefined ? {} : { overlayMode: options.overlayMode }),
      }),
    request: (id, changes) => ({ ...makeRequest(dir, layers, id), ...changes }),
    blank: ({ uidBase, shmBytes }) => ({ uidBase, shmBytes, socketPath: join(dir, `blank-${uidBase}.sock`) }),
    cgroups: (id) => roots.map((root) => ({ dir: join(root, id), writes: limitsOf(root), handOver: true })),
    layer: (label, files) => layer(label, (tree) => writeFiles(tree, files)),
    [Symbol.dispose]: () => {
      for (const mount of mounts) execFileSync("umount", [mount]);
      for (const root of roots) removeCgroups(root);
      rmSync(dir, { recursive: true });
    },
  };
}

/** Everything of these requests that the node still has: processes, cgroups, sockets. Empty when nothing is left. */
export function leftovers(cradle: Cradle, requests: readonly CradleRequest[]): readonly string[] {
  const paths = requests.flatMap((request) => [request.socketPath, ...request.cgroups.map((cgroup) => cgroup.dir)]);
  return [...inSandboxes(cradle).map((pid) => `process ${pid}`), ...paths.filter((path) => existsSync(path))];
}

/** The launcher's children that are no workers: those have the user namespace of the host. */
function inSandboxes(cradle: Cradle): readonly number[] {
  const host = readlinkSync("/proc/self/ns/user");
  return childrenOf(cradle.pid).filter((pid) => linkOf(`/proc/${pid}/ns/user`) !== host);
}

/** Direct children of a process. */
export function childrenOf(pid: number): readonly number[] {
  return (readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").match(/\d+/g) ?? []).map(Number);
}

/** Where a link of `/proc` points; `undefined` when the process is gone. */
export function linkOf(path: string): string | undefined {
  try {
    return readlinkSync(path);
  } catch {
    return undefined;
  }
}

/** Sends one line to the agent of a sandbox, returns its whole answer. */
export async function ask(request: CradleRequest, line: string): Promise<string> {
  const socket = connect({ path: request.socketPath, allowHalfOpen: true });
  socket.end(line);
  return await text(socket);
}

/** Runs a shell line in a sandbox. */
export async function shell(request: CradleRequest, line: string): Promise<{ out: string; status: number }> {
  const answer = await ask(request, line);
  const at = answer.lastIndexOf("\nstatus ");
  return { out: answer.slice(0, at), status: Number(answer.slice(at + "\nstatus ".length)) };
}

/** Kills an agent and waits until the launcher has reported it. */
export async function stop(cradle: Cradle, pid: number): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  using _ = cradle.onExit((exit) => exit.pid === pid && resolve());
  process.kill(pid, "SIGKILL");
  await promise;
}

function cgroupRoots(): readonly string[] {
  const hybrid = HIERARCHIES.filter((root) => existsSync(join(root, "cgroup.procs")));
  return hybrid.length > 0 ? hybrid : ["/sys/fs/cgroup"];
}

function limitsOf(root: string): CradleCgroup["writes"] {
  if (root.includes("/memory/")) return [["memory.limit_in_bytes", "67108864"]];
  if (root.includes("/pids/")) return [["pids.max", "64"]];
  return root.includes("/cpu/") ? [["cpu.cfs_quota_us", "100000"]] : [];
}

function removeCgroups(root: string): void {
  for (const entry of readdirSync(root, { withFileTypes: true })) {
    if (entry.isDirectory()) removeCgroups(join(root, entry.name));
  }
  rmdirSync(root);
}

function makeRequest(dir: string, layers: readonly string[], id: string): CradleRequest {
  const slot = 2 + (Number(/\d+$/.exec(id)?.[0] ?? 0) % 20_000);
  // Multiples of 65,536 would all fall into one bucket of the kernel's table of users.
  const uidBase = slot * 65_537;
  const home = join(dir, "boxes", id);
  for (const part of ["upper", "work", "run"]) mkdirSync(join(home, part), { recursive: true });
  return {
    id,
    uidBase,
    layers,
    upperDir: join(home, "upper"),
    workDir: join(home, "work"),
    hostname: `host-${id}`,
    hosts: `127.0.0.1 localhost\n127.0.1.1 host-${id}\n`,
    resolvConf: "nameserver 127.0.0.1\n",
    socketPath: join(home, "run", "agent.sock"),
    agentArgs: ["--probe"],
    cgroups: [],
    shmBytes: 1024 * 1024,
  };
}

function mountLayer(dir: string, label: string, fill: (tree: string) => void): string {
  const [tree, image, target] = ["tree", "erofs", "mnt"].map((suffix) => join(dir, `${label}.${suffix}`)) as [
    string,
    string,
    string,
  ];
  mkdirSync(tree);
  mkdirSync(target);
  fill(tree);
  execFileSync("mkfs.erofs", ["--quiet", image, tree], { stdio: "ignore" });
  execFileSync("mount", ["-t", "erofs", "-o", "ro,loop", image, target]);
  return target;
}

function fillBase(tree: string): void {
  writeFiles(tree, {
    "proc/": "/",
    "sys/": "/",
    "dev/": "/",
    "tmp/": "/",
    "root/": "/",
    "etc/hosts": "",
    "etc/hostname": "",
    "etc/resolv.conf": "",
    "etc/passwd": "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/:/bin/sh\n",
    "etc/base": "from the base\n",
    "bin/": "/",
  });
  execFileSync("cp", [firstExisting("/bin/busybox", "/usr/bin/busybox"), join(tree, "bin/busybox")]);
  execFileSync(join(tree, "bin/busybox"), ["--install", "-s", join(tree, "bin")]);
  // Links of --install name the binary by its place outside.
  for (const name of readdirSync(join(tree, "bin"))) {
    if (name !== "busybox") execFileSync("ln", ["-sf", "busybox", join(tree, "bin", name)]);
  }
  execFileSync("cp", [join(BUILD, "cradle-attacker"), join(tree, "bin/attacker")]);
}

function firstExisting(...paths: readonly string[]): string {
  return paths.find((path) => existsSync(path)) ?? (paths[0] as string);
}

function writeFiles(tree: string, files: Readonly<Record<string, string>>): void {
  for (const [path, content] of Object.entries(files)) {
    const target = join(tree, path);
    mkdirSync(content === "/" ? target : join(target, ".."), { recursive: true });
    if (content.startsWith("->")) execFileSync("ln", ["-s", content.slice(2), target]);
    else if (content !== "/") writeFileSync(target, content);
  }
}
