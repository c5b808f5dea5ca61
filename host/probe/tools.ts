import { findProgram } from "#host/programs.ts";
import { type Look, missing, works } from "./fact.ts";

/** Programs that the platform runs, and what for. None is needed to run a sandbox from an image that is there already. */
const TOOLS: readonly { readonly name: string; readonly debianPackage: string; readonly why: string }[] = [
  { name: "gcc", debianPackage: "gcc", why: "building the agent and the launcher" },
  { name: "make", debianPackage: "make", why: "building the agent and the launcher" },
  { name: "mkfs.btrfs", debianPackage: "btrfs-progs", why: "making the volume with disk limits" },
  { name: "mmdebstrap", debianPackage: "mmdebstrap", why: "making Debian base images" },
  { name: "bash-static", debianPackage: "bash-static", why: "sessions, whose shell it is" },
  { name: "busybox", debianPackage: "busybox-static", why: "the base image host-busybox" },
  {
    name: "qemu-system-x86_64",
    debianPackage: "qemu-system-x86",
    why: "sandboxes with a kernel of their own (microVMs)",
  },
  { name: "mke2fs", debianPackage: "e2fsprogs", why: "disks of microVMs" },
  { name: "skopeo", debianPackage: "skopeo", why: "fetching images from container registries" },
  { name: "git", debianPackage: "git", why: "fetching git revisions" },
];

/** Looks for the programs. */
export function toolLooks(path = process.env.PATH ?? ""): readonly Look[] {
  return TOOLS.map(({ name, debianPackage, why }) => ({
    name,
    why,
    how: `apt-get install ${debianPackage}`,
    look: () => {
      const file = findProgram(name, path);
      return file === undefined ? missing("not found") : works(file);
    },
  }));
}
