import { existsSync } from "node:fs";
import { SandboxError } from "#core/errors.ts";
import type { ComputerShape } from "#core/sandbox.ts";
import { FIRMWARE } from "#host/vmm/computer.ts";
import { findQemu } from "#host/vmm/qemu/process.ts";

/** Rejects with `FailedPrecondition` what this host lacks for computers of this shape. */
export function checkHost({ firmware }: ComputerShape): void {
  findQemu();
  if (firmware === "bios" || Object.values(FIRMWARE).every((path) => existsSync(path))) return;
  throw new SandboxError("FailedPrecondition", "this node has no UEFI for virtual machines", {
    hint: "apt-get install ovmf on the node, or ask for the firmware bios",
    details: { firmware },
  });
}
