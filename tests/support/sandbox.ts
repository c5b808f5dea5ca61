import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type CreateSandbox, DsecError, type Sandbox } from "#sdk";
import { type NodeOptions, startNode, type TestNode } from "./node.ts";

/** The base of most tests: ready in a second. */
export const BASE = "host-busybox";

/** A node with the busybox base in its catalogue. */
export async function startNodeWithBase(options: NodeOptions = {}): Promise<TestNode> {
  const node = await startNode(options);
  try {
    await node.client.artifacts.build({ name: BASE, suite: BASE });
  } catch (error) {
    await node[Symbol.asyncDispose]();
    throw error;
  }
  return node;
}

/** A sandbox over the busybox base. */
export function create(node: TestNode, request: Partial<CreateSandbox> = {}): Promise<Sandbox> {
  return node.client.sandboxes.create({ base: BASE, ...request });
}

/** stdout of a command that must succeed. */
export async function output(sandbox: Sandbox, line: string | readonly string[]): Promise<string> {
  const result = await sandbox.run(line);
  assert.ok(result.ok, `${line}: ${JSON.stringify(result.status)} ${result.stderrText}`);
  return result.stdoutText.trim();
}

/** Compiles a C file of the tests to a static program and puts it into a sandbox. */
export async function installProgram(sandbox: Sandbox, source: string, target: string): Promise<void> {
  await sandbox.files.write(target, compileProgram(source), { mode: 0o755 });
}

/** A C file of the tests as a static program. */
export function compileProgram(source: string): Buffer {
  const folder = mkdtempSync(join(tmpdir(), "dsec-program-"));
  try {
    const program = join(folder, "program");
    const flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-O2", "-static"];
    execFileSync("gcc", [...flags, "-o", program, source]);
    return readFileSync(program);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** Asserts that a call is refused with this kind, and that the error says what to do or what was wrong. */
export async function refused(call: Promise<unknown>, kind: string, message?: RegExp): Promise<void> {
  await assert.rejects(call, (error: unknown) => {
    assert.ok(error instanceof DsecError, `an untyped error: ${error}`);
    assert.equal(error.kind, kind, error.message);
    if (message !== undefined) assert.match(error.message, message);
    return true;
  });
}
