import { readFile } from "node:fs/promises";
import type { TreeEntry } from "#core/tar/entry.ts";
import { busyboxApplets, findBusybox } from "#host/busybox.ts";
import type { ImportedArtifact } from "../import.ts";
import type { LayerBuilder } from "../layers/builder.ts";
import { buildLayer } from "../layers/layer.ts";
import { DEFAULT_LIMITS } from "../limits.ts";
import type { LayerStore } from "../store.ts";

/** Name of the base in the catalogue. */
export const HOST_BUSYBOX = "host-busybox";

const DIRECTORIES: readonly (readonly [path: string, mode: number, owner: number])[] = [
  [".", 0o755, 0],
  ...["bin", "dev", "etc", "home", "proc", "sys", "usr", "usr/bin", "usr/sbin", "sbin", "var", "var/tmp"].map(
    (path) => [path, path === "var/tmp" ? 0o1777 : 0o755, 0] as const,
  ),
  ["home/user", 0o755, 1000],
  ["root", 0o700, 0],
  ["tmp", 0o1777, 0],
];

const FILES: Readonly<Record<string, string>> = {
  "etc/passwd":
    "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\nuser:x:1000:1000:user:/home/user:/bin/sh\n",
  "etc/group": "root:x:0:\nnogroup:x:65534:\ntty:x:5:\nuser:x:1000:\n",
  // The launcher mounts its own over these. What is not there it makes, in each sandbox anew.
  "etc/hostname": "",
  "etc/hosts": "",
  "etc/resolv.conf": "",
  "etc/profile": "export PATH=/usr/sbin:/usr/bin:/sbin:/bin\n",
};

/**
 * A base of the host's static busybox alone, made in well under a second: a shell and the usual tools, the users root, nobody
 * and user (1000). `FailedPrecondition` when the host has no static busybox.
 */
export async function hostBusybox(store: LayerStore, signal?: AbortSignal): Promise<ImportedArtifact> {
  const binary = await findBusybox();
  const applets = await busyboxApplets(binary, signal);
  const bytes = await readFile(binary);
  const options = { store, limits: DEFAULT_LIMITS, whiteouts: "none", devices: "refuse" } as const;
  const built = await buildLayer(options, async ({ builder }) => {
    for (const [path, mode, owner] of DIRECTORIES)
      builder.entry(entry(path, "directory", { mode, uid: owner, gid: owner }));
    addFile(builder, "bin/busybox", bytes, 0o755);
    for (const [path, text] of Object.entries(FILES)) addFile(builder, path, Buffer.from(text), 0o644);
    for (const path of applets) {
      if (path !== "bin/busybox" && path !== "linuxrc") builder.entry(entry(path, "link", { target: "bin/busybox" }));
    }
  });
  const { digest, sizeBytes, tree } = built;
  const config = { env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin" }, user: undefined, workdir: undefined };
  return { layers: [digest], config, sizeBytes, receivedBytes: bytes.length, entries: tree.entries, skippedDevices: 0 };
}

function addFile(builder: LayerBuilder, path: string, bytes: Uint8Array, mode: number): void {
  builder.entry(entry(path, "file", { mode, size: bytes.length }));
  builder.data(bytes);
}

/** Times are those of the epoch, so that equal busyboxes give equal layers. */
function entry(path: string, type: TreeEntry["type"], differing: Partial<TreeEntry>): TreeEntry {
  const plain = {
    mode: 0o755,
    uid: 0,
    gid: 0,
    mtimeS: 0,
    mtimeNs: 0,
    xattrs: undefined,
    size: 0,
    target: "",
    major: 0,
    minor: 0,
  };
  return { path, type, ...plain, ...differing };
}
