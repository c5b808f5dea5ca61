import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Worker } from "node:worker_threads";
import { type Finding, type Look, missing } from "./fact.ts";

/** The looks that mount something; each is a function of `mount-worker.ts`. */
export type MountLook = "userNamespaces" | "erofs" | "idmappedOverlay" | "loop" | "btrfs";

/** What the thread is asked; `dir` is empty and its to fill. */
export interface MountRequest {
  readonly name: MountLook;
  readonly dir: string;
}

/** Carries out looks in a thread that has a mount namespace of its own, gone with the thread. */
export interface PrivateMounts extends AsyncDisposable {
  look(name: MountLook): Promise<Finding>;
}

/** Looks that mount something. */
export function mountLooks(mounts: PrivateMounts): readonly Look[] {
  return [
    {
      name: "user namespaces",
      why: "root inside a sandbox is nobody outside",
      how: "set user.max_user_namespaces above 0 (sysctl)",
      look: () => mounts.look("userNamespaces"),
    },
    {
      name: "erofs",
      why: "read-only layers of environments, shared by all sandboxes of the node",
      how: "boot a kernel with CONFIG_EROFS_FS; 6.12 or newer mounts image files directly",
      look: () => mounts.look("erofs"),
    },
    {
      name: "overlay over id-mapped layers",
      why: "one copy of a layer serves every sandbox's own range of user ids",
      how: "boot kernel 5.19 or newer with CONFIG_OVERLAY_FS",
      look: () => mounts.look("idmappedOverlay"),
    },
    {
      name: "loop devices",
      why: "the volume with disk limits lives in a file",
      how: "load the module loop, or put the data directory on btrfs",
      look: () => mounts.look("loop"),
    },
    {
      name: "btrfs quotas",
      why: "disk limits of sandboxes (diskMiB); without, they are refused",
      how: "install btrfs-progs on a kernel with CONFIG_BTRFS_FS, best 6.7 or newer",
      look: () => mounts.look("btrfs"),
    },
  ];
}

/** Starts the thread at the first look. A look that hangs ends the thread, and with it what it mounted. */
export function withPrivateMounts(limitMs: number): PrivateMounts {
  let worker: Worker | undefined;
  let last: Promise<Finding> | undefined;
  const end = async () => {
    await worker?.terminate();
    worker = undefined;
  };
  const look = async (name: MountLook): Promise<Finding> => {
    // Descriptors of raw system calls are closed by those who opened them; Node would warn about each.
    worker ??= new Worker(new URL("./mount-worker.ts", import.meta.url), { trackUnmanagedFds: false });
    const dir = mkdtempSync(join(tmpdir(), "dsec-probe-"));
    try {
      const finding = await askWorker(worker, { name, dir }, limitMs);
      if (finding === undefined) await end();
      return finding ?? missing("the kernel did not answer in time");
    } finally {
      rmSync(dir, { recursive: true });
    }
  };
  return {
    look(name) {
      last = look(name);
      return last;
    },
    async [Symbol.asyncDispose]() {
      await end();
      // Whoever asked may have left before it had cleared up.
      await last?.catch(() => undefined);
    },
  };
}

function askWorker(worker: Worker, request: MountRequest, limitMs: number): Promise<Finding | undefined> {
  const { promise, resolve, reject } = Promise.withResolvers<Finding | undefined>();
  const timer = setTimeout(() => resolve(undefined), limitMs * 0.9);
  worker.once("message", resolve);
  worker.once("error", reject);
  worker.postMessage(request);
  return promise.finally(() => {
    clearTimeout(timer);
    worker.off("message", resolve);
    worker.off("error", reject);
  });
}
