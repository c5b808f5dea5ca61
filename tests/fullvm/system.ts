import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { CreateSandbox, Forks, Sandbox } from "#sdk";
import { QEMU } from "../host-vm/guest.ts";
import type { NodeOptions, TestNode } from "../support/node.ts";
import { waitUntil } from "../support/wait.ts";
import { startNodeWithMemtest } from "./screen.ts";

/** Why tests that run computers cannot, or false. */
export const skip = existsSync(QEMU) ? false : `${QEMU} is missing: ./dsec test fullvm installs it`;
/** Kept for the next run: a kernel. */
export const GUEST_DIR = join(import.meta.dirname, "../../.build/guest");
/** The name of a system of busybox with the agent. */
export const IMAGE = "busybox-system";
/** It starts within seconds; in software, on a busy machine, within minutes. */
export const START_MS = 600_000;
const GIVEN_BACK_MS = 60_000;
/** In what it writes every number that is missing, or comes twice, shows. */
export const COUNTER = "i=0; while [ $i -lt 100000 ]; do echo $i; i=$((i+1)); sleep 0.1; done";

/** A node as `startNodeWithMemtest` makes it, with the image of a system of busybox. */
export async function startNodeWithSystem({ words = [], ...options }: NodeOptions = {}): Promise<TestNode> {
  const node = await startNodeWithMemtest({ ...options, words: [`--guest-dir=${GUEST_DIR}`, ...words] });
  try {
    await node.client.artifacts.build({ name: IMAGE, kind: "vm-image", suite: "host-busybox" });
    return node;
  } catch (error) {
    await node[Symbol.asyncDispose]();
    throw error;
  }
}

/** One whose system has started. */
export async function createSystem({ client }: TestNode, request: Partial<CreateSandbox> = {}): Promise<Sandbox> {
  const made = await client.sandboxes.create({ base: IMAGE, resources: { memoryMiB: 128 }, ...request });
  await answers(made);
  return made;
}

/** Resolves when its system has started. */
export async function answers(sandbox: Sandbox): Promise<void> {
  await waitUntil("its system answers", START_MS, () =>
    sandbox.run("true").then(
      ({ ok }) => ok,
      () => false,
    ),
  );
}

/** Where its disk lies, and what is saved of it. */
export function dirOf({ runDir }: TestNode, { id }: Pick<Sandbox, "id">): string {
  return join(runDir, "computer-disks/volume", id, "upper");
}

/** Where its sockets lie, and what is known of it while it runs. */
export function runDirOf({ runDir }: TestNode, { id }: Pick<Sandbox, "id">): string {
  return join(runDir, "computers", id);
}

/** The process that runs it. */
export function monitorOf(node: TestNode, sandbox: Pick<Sandbox, "id">): number {
  return (JSON.parse(readFileSync(join(runDirOf(node, sandbox), "vmm.json"), "utf8")) as { pid: number }).pid;
}

/** Waits until a sandbox whose monitor was killed is known to be lost. */
export async function untilLost(sandbox: Sandbox): Promise<void> {
  await waitUntil("it is lost", START_MS, async () => (await sandbox.info()).state === "failed");
}

/** Where what a computer was at one moment lies, while copies of it begin. */
export function instantsOf({ runDir }: TestNode): string {
  return join(runDir, "computer-disks/volume/.shared/instants");
}

/** Waits until the node holds nothing but its sandboxes: what has ended is given back a moment later. */
export async function nothingIsLeft(node: TestNode): Promise<void> {
  let left: readonly string[] = [];
  const isEmpty = async () => {
    const resources = await node.client.nodes.resources(node.marks.edge);
    left = [...readdirSync(instantsOf(node)), ...resources.flatMap(({ surplus }) => surplus)];
    return left.length === 0;
  };
  await waitUntil("nothing is left", GIVEN_BACK_MS, isEmpty).catch(() => assert.deepEqual(left, []));
}

/** All forks, to be removed with the stack; fails when one of them was not made. */
export async function forked(stack: AsyncDisposableStack, forks: Promise<Forks>): Promise<readonly Sandbox[]> {
  return (await forks).forks.map((made) => {
    assert.ok("sandbox" in made, "error" in made ? made.error.message : "");
    return stack.use(made.sandbox);
  });
}
