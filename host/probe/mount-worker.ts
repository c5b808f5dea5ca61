import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, mkdirSync, openSync, readlinkSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { parentPort } from "node:worker_threads";
import { hasCode } from "#core/errors.ts";
import { attachLoop } from "#host/sys/loop.ts";
import { MNT, MS, mount, unmount } from "#host/sys/mount.ts";
import { enterPrivateMounts } from "#host/sys/namespace.ts";
import { bindIdmapped } from "#host/sys/tree.ts";
import { openVolume } from "#host/volume/volume.ts";
import { emptyErofs } from "./empty-erofs.ts";
import { type Finding, missing, partial, works } from "./fact.ts";
import type { MountLook, MountRequest } from "./mounts.ts";

/** First host id of the trial map; any id but 0 shows whether the map is in force. */
const MAPPED_UID = 0x1_0000;

const LOOKS: Readonly<Record<MountLook, (dir: string) => Promise<Finding>>> = {
  userNamespaces: () => withUserNamespace(async (_, namespace) => works(namespace)),
  erofs: async (dir) => lookAtErofs(dir),
  idmappedOverlay: lookAtIdmappedOverlay,
  loop: async (dir) => lookAtLoop(dir),
  btrfs: lookAtBtrfs,
};

parentPort?.on("message", async (request: MountRequest) => parentPort?.postMessage(await look(request)));

async function look({ name, dir }: MountRequest): Promise<Finding> {
  try {
    enterPrivateMounts();
    return await LOOKS[name](dir);
  } catch (error) {
    return missing(error instanceof Error ? error.message : String(error));
  }
}

function lookAtErofs(dir: string): Finding {
  const { target, isDirect } = mountImage(dir);
  unmount(target, MNT.DETACH);
  return isDirect ? works("mounts image files directly") : partial("mounts images through loop devices only");
}

/** Mounts an empty EROFS image as layers are: from its file, else through a loop device. Throws where neither works. */
function mountImage(dir: string): { readonly target: string; readonly isDirect: boolean } {
  const [image, target] = [join(dir, "image"), join(dir, "layer")];
  writeFileSync(image, emptyErofs());
  mkdirSync(target, { recursive: true });
  try {
    mount(image, target, "erofs", MS.RDONLY);
    return { target, isDirect: true };
  } catch (error) {
    if (hasCode(error, "ENODEV")) throw error;
  }
  using device = attachLoop(image, { readOnly: true, directIo: false });
  mount(device.path, target, "erofs", MS.RDONLY);
  return { target, isDirect: false };
}

async function lookAtIdmappedOverlay(dir: string): Promise<Finding> {
  const parts = ["mapped", "upper", "work", "merged"].map((name) => join(dir, name));
  const [mapped = "", upper = "", work = "", merged = ""] = parts;
  for (const part of parts) mkdirSync(part);
  const lower = mountLayer(dir);
  return withUserNamespace(async (namespaceFd) => {
    bindIdmapped(lower.path, mapped, namespaceFd);
    mount("overlay", merged, "overlay", MS.NODEV, `lowerdir=${mapped},upperdir=${upper},workdir=${work}`);
    const owner = statSync(mapped).uid;
    for (const target of [merged, mapped, lower.path]) unmount(target, MNT.DETACH);
    if (owner !== MAPPED_UID) return missing(`ids are not mapped: owner ${owner}`);
    return works(`over ${lower.fstype}`);
  });
}

/** An EROFS mount; a tmpfs where there is no EROFS, which has a fact of its own. */
function mountLayer(dir: string): { readonly path: string; readonly fstype: string } {
  try {
    return { path: mountImage(dir).target, fstype: "erofs" };
  } catch {
    const path = join(dir, "layer");
    mount("none", path, "tmpfs");
    return { path, fstype: "tmpfs" };
  }
}

function lookAtLoop(dir: string): Finding {
  const file = join(dir, "file");
  writeFileSync(file, Buffer.alloc(4096));
  using device = attachLoop(file, { readOnly: true, directIo: true });
  return works(`attached ${device.path}, ${device.directIo ? "direct" : "buffered"} I/O`);
}

async function lookAtBtrfs(dir: string): Promise<Finding> {
  await using volume = await openVolume({ dataDir: dir, runDir: dir, sizeMiB: 256 });
  if (!volume.supportsLimits) return missing(volume.reason ?? "no limits");
  volume.createUpper("probe", 16 * 1024 * 1024);
  await volume.removeUpper("probe");
  return works("subvolumes with limits");
}

/** Runs an action with a user namespace that maps root to `MAPPED_UID`, held by a process that ends with it. */
async function withUserNamespace(action: (fd: number, name: string) => Promise<Finding>): Promise<Finding> {
  // It reads until its input is closed, which the end of this thread does as well.
  const holder = spawn("unshare", ["--user", "cat"], { stdio: ["pipe", "ignore", "ignore"] });
  const ended = new Promise<void>((resolve) => holder.once("close", () => resolve()).once("error", () => resolve()));
  try {
    const link = await namespaceOf(holder);
    for (const map of ["uid_map", "gid_map"]) writeFileSync(`/proc/${holder.pid}/${map}`, `0 ${MAPPED_UID} 65536`);
    const fd = openSync(link, "r");
    try {
      return await action(fd, readlinkSync(link));
    } finally {
      closeSync(fd);
    }
  } finally {
    holder.kill("SIGKILL");
    await ended;
  }
}

async function namespaceOf(holder: ChildProcess): Promise<string> {
  const [link, own] = [`/proc/${holder.pid}/ns/user`, readlinkSync("/proc/self/ns/user")];
  while (readlinkSync(link) === own) {
    if (holder.exitCode !== null) throw new Error("unshare --user was refused");
    await delay(2);
  }
  return link;
}
