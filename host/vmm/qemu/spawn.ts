import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, mkdirSync, openSync } from "node:fs";
import { join } from "node:path";
import { SandboxError } from "#core/errors.ts";
import { processStartTicks } from "#host/sys/process.ts";
import { DEVICES_FILE, MACHINE_PORTS, type MachinePlace, type MachineProcess, type MachineSpec } from "../vmm.ts";
import { qemuWords } from "./words.ts";

/** Where QEMU takes orders, in the machine's directory. */
export const MONITOR_SOCKET = "monitor.sock";
/** What QEMU itself has to say, in the machine's directory. */
export const QEMU_LOG = "qemu.log";

/** Joins the cgroups whose files it is given, up to `--`, then becomes the program behind. */
const JOIN = 'while [ "$1" != -- ]; do echo $$ >"$1" || exit 71; shift; done; shift; exec "$@"';
/** Everything that it could reach by name stays outside. Its user is taken on by QEMU itself, when it has opened what it needs. */
const APART = ["unshare", "--mount", "--net", "--ipc", "--uts", "--"];
const WITHOUT_RIGHTS = [
  ...["setpriv", "--no-new-privs", "--inh-caps=-all"],
  ...["--bounding-set=-all,+setuid,+setgid,+sys_chroot", "--"],
];
const DEVICES_OUT_FD = 3;
const DEVICES_IN_FD = 4;

/** Starts QEMU at a place, confined; it outlives this process. Resolves before it listens. */
export function spawnQemu(
  program: string,
  spec: MachineSpec,
  place: MachinePlace,
): { readonly child: ChildProcess; readonly process: MachineProcess } {
  const { dir } = place;
  const emptyDir = join(dir, "empty");
  mkdirSync(emptyDir, { recursive: true, mode: 0o755 });
  using files = new DisposableStack();
  const open = (path: string, flags: string) => {
    const fd = openSync(path, flags, 0o600);
    files.defer(() => closeSync(fd));
    return fd;
  };
  const log = open(join(dir, QEMU_LOG), "a");
  // Appending: each state that is written begins where the file ends, which is cut off before.
  const out = open(join(dir, DEVICES_FILE), "a");
  const devices = spec.devices === undefined ? [] : [open(spec.devices, "r")];
  const words = qemuWords(spec, {
    uid: place.uid,
    emptyDir,
    monitor: join(dir, MONITOR_SOCKET),
    control: join(dir, MACHINE_PORTS.control),
    agent: join(dir, MACHINE_PORTS.agent),
    devicesOut: DEVICES_OUT_FD,
    devicesIn: devices.length === 0 ? undefined : DEVICES_IN_FD,
  });
  const line = ["-c", JOIN, "sh", ...place.cgroups, "--", ...APART, ...WITHOUT_RIGHTS, program, ...words];
  const child = spawn("/bin/sh", line, {
    stdio: ["ignore", log, log, out, ...devices],
    env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin" },
    cwd: "/",
    detached: true,
  });
  child.on("error", () => {});
  child.unref();
  const startTicks = child.pid === undefined ? undefined : processStartTicks(child.pid);
  if (child.pid === undefined || startTicks === undefined) {
    throw new SandboxError("FailedPrecondition", "a machine's process cannot be started");
  }
  return { child, process: { pid: child.pid, startTicks } };
}
