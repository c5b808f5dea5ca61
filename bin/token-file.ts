import { existsSync, renameSync, writeFileSync } from "node:fs";
import { type Control, DEFAULT_PROJECT } from "#control/index.ts";

/**
 * Leaves a working root token in `file`, for its owner only: the first one of a new store, or another one when somebody has
 * removed the file.
 */
export async function provideToken(control: Pick<Control, "iam" | "rootToken">, file: string): Promise<void> {
  if (control.rootToken === undefined && existsSync(file)) return;
  const root = { name: "root", project: DEFAULT_PROJECT, role: "admin" } as const;
  const token = control.rootToken ?? (await control.iam.createToken(root));
  writeFileSync(`${file}.new`, `${token}\n`, { mode: 0o600 });
  renameSync(`${file}.new`, file);
}
