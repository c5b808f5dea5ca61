import { readdirSync, renameSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { hasCode } from "#core/errors.ts";

/** Gives a directory that was made whole its name. Another node that keeps its own here may have been faster. */
export function placeWhole(from: string, to: string): void {
  try {
    renameSync(from, to);
  } catch (error) {
    if (!hasCode(error, "EEXIST", "ENOTEMPTY")) throw error;
  }
}

/** Keeps the `most` that were used last; what is named like `but` is none. Machines that go on from one that goes keep what they have mapped. */
export function evict(dir: string, { most, but }: { readonly most: number; readonly but: string }): void {
  const kept = readdirSync(dir)
    .filter((name) => !name.startsWith(but))
    .map((name) => ({ path: join(dir, name), usedAtMs: statSync(join(dir, name)).mtimeMs }))
    .sort((a, b) => b.usedAtMs - a.usedAtMs);
  for (const { path } of kept.slice(most)) rmSync(path, { recursive: true, force: true });
}
