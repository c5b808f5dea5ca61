import { existsSync, renameSync, writeFileSync } from "node:fs";
import type { Iam } from "#control/iam/iam.ts";
import { DEFAULT_PROJECT } from "#control/iam/iam.ts";

/**
 * Leaves a working root token in `file`, for its owner only: the first one of a new store, or another one when somebody has
 * removed the file.
 */
export async function provideToken(iam: Iam, file: string): Promise<void> {
  const first = await iam.bootstrap();
  if (first === undefined && existsSync(file)) return;
  const token = first ?? (await iam.createToken({ name: "root", project: DEFAULT_PROJECT, role: "admin" }));
  writeFileSync(`${file}.new`, `${token}\n`, { mode: 0o600 });
  renameSync(`${file}.new`, file);
}
