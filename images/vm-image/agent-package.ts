import { execFile } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { readFile, rename } from "node:fs/promises";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { hasCode, SandboxError } from "#core/errors.ts";
import { AGENT_PATH, addFile } from "./tree-files.ts";

/** What the package is made of. */
export interface AgentPackageOptions {
  /** The agent's program. */
  readonly agent: string;
  /** Of the package. */
  readonly version: string;
  /** The file to be made, or made anew, in a directory that is there. */
  readonly target: string;
}

const BUILDER = "dpkg-deb";
const UNITS = "usr/lib/systemd/system";
const UNIT = "dsec-agent.service";
const SERVICE = `[Unit]
Description=agent of DSec
DefaultDependencies=no
After=systemd-remount-fs.service

[Service]
ExecStart=/${AGENT_PATH} --guest
Restart=always
RestartSec=1
OOMScoreAdjust=-900
KillMode=process
`;
const control = (version: string) => `Package: dsec-agent
Version: ${version}
Architecture: amd64
Maintainer: DSec
Depends: bash, systemd
Section: admin
Priority: optional
Description: agent of DSec for full virtual machines
 Lets a computer of DSec run commands, move files and reach ports in its system.
`;
/** Nobody waits for it: whoever installs this by the agent that is replaced would wait for himself. */
const CONFIGURE = `#!/bin/sh
set -e
[ "$1" = configure ] && [ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
systemctl --no-block restart ${UNIT}
`;
const REMOVE = `#!/bin/sh
set -e
[ "$1" = remove ] && [ -d /run/systemd/system ] || exit 0
systemctl stop ${UNIT}
`;

/**
 * Makes a Debian package that has the agent as a service, started with the system; equal parts make equal bytes. Throws `FailedPrecondition` without
 * dpkg-deb, and the system's errors of the target, which is whole or as it was.
 */
export async function makeAgentPackage({ agent, version, target }: AgentPackageOptions): Promise<void> {
  const scratch = mkdtempSync(join(dirname(target), ".dsec-agent-"));
  try {
    const [tree, made] = [join(scratch, "tree"), join(scratch, "made.deb")];
    addFile(tree, AGENT_PATH, await readFile(agent), 0o755);
    addFile(tree, join(UNITS, UNIT), SERVICE, 0o644);
    mkdirSync(join(tree, UNITS, "sysinit.target.wants"));
    symlinkSync(`../${UNIT}`, join(tree, UNITS, "sysinit.target.wants", UNIT));
    addFile(tree, "DEBIAN/control", control(version), 0o644);
    addFile(tree, "DEBIAN/postinst", CONFIGURE, 0o755);
    addFile(tree, "DEBIAN/prerm", REMOVE, 0o755);
    await promisify(execFile)(BUILDER, ["--root-owner-group", "--build", tree, made], {
      env: { ...process.env, SOURCE_DATE_EPOCH: "0" },
    });
    await rename(made, target);
  } catch (error) {
    const isMissing = error instanceof Error && "syscall" in error && error.syscall === `spawn ${BUILDER}`;
    if (!isMissing || !hasCode(error, "ENOENT")) throw error;
    throw new SandboxError("FailedPrecondition", "this machine has no dpkg-deb", {
      cause: error,
      hint: "make the package on a Debian or Ubuntu",
    });
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}
