import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { test } from "node:test";
import { ERROR_KINDS } from "#core/errors.ts";
import { OPERATIONS } from "./operations.ts";

function page(name: string): string {
  return readFileSync(join(import.meta.dirname, "..", "docs", "using", name), "utf8");
}

test("docs/using/errors.md has every kind with its status and its retry, in the order of the code", () => {
  const rows = [...page("errors.md").matchAll(/^\| `(\w+)` \| (\d+) \| (\w+) \| \S/gm)].map(
    ([, kind, status, retry]) => [kind, Number(status), retry],
  );
  assert.deepEqual(
    rows,
    Object.entries(ERROR_KINDS).map(([kind, { status, retry }]) => [kind, status, retry]),
  );
});

test("the pages of docs/using show every call once, and no other, with an example after it", () => {
  const pages = globSync("docs/using/*.md", { cwd: join(import.meta.dirname, "..") }).map((file) =>
    page(basename(file)),
  );
  const shown = pages.flatMap((text) =>
    [...text.matchAll(/^# (⇅ )?([A-Z]+) (\/[^\s:]*).*\n(?:printf .* \| )?.*(?:curl|websocat) /gm)].map(
      ([, mark, method, path]) => `${mark === undefined ? "" : mark}${method} ${path}`,
    ),
  );
  const calls = Object.values(OPERATIONS).map(({ method, path, streams }) => `${streams ? "⇅ " : ""}${method} ${path}`);
  assert.deepEqual(shown.sort(), calls.sort());
});
