import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { checkChangelog } from "./check-changelog.ts";
import { checkFigures } from "./check-figures.ts";
import { checkGlossary } from "./check-glossary.ts";
import { checkLinks } from "./check-links.ts";
import { type Check, treeOf } from "./tree.ts";

function run(check: Check, texts: Readonly<Record<string, string>>): string[] {
  return check(treeOf(texts)).map(({ path, line, message }) => `${path}:${line} ${message}`);
}

describe("checkChangelog", () => {
  const good = "# Changelog\n\n## Unreleased\n\n### Added\n\n- A thing that\n  works.\n\n## 0.1.0 (2026-11-30)\n";
  const check = (text: string) => run(checkChangelog, { "CHANGELOG.md": text });
  test("takes the form", () => assert.deepEqual(check(good), []));
  test("refuses an unknown group", () => {
    assert.deepEqual(check(good.replace("Added", "News")), ["CHANGELOG.md:5 News is no known group"]);
  });
  test("refuses an undated version", () => assert.equal(check(good.replace(" (2026-11-30)", "")).length, 1));
  test("refuses an entry that is no sentence", () => assert.equal(check(good.replace("works.", "works")).length, 1));
  test("wants Unreleased first", () => assert.equal(check(good.replace("## Unreleased\n", "")).length, 1));
  test("wants a changelog", () => assert.equal(run(checkChangelog, {}).length, 1));
});

describe("checkLinks", () => {
  const pages = {
    "README.md": "# Top\n\n[a](docs/README.md#the-words-a--b) [b](https://example.org) `[c](none.md)` [d](docs/)\n",
    "docs/README.md": "# Index\n\n## The words, `a` & b\n\n[up](../README.md#top)\n\n```\n[x](none.md)\n```\n",
  };
  test("follows files, folders and anchors; code is not linked", () => assert.deepEqual(run(checkLinks, pages), []));
  test("finds a link to no file", () => {
    assert.deepEqual(run(checkLinks, { "README.md": "[a](b.md)" }), ["README.md:1 b.md leads to nothing"]);
  });
  test("finds a link to no heading", () => {
    assert.deepEqual(run(checkLinks, { ...pages, "a.md": "[a](README.md#bottom)" }), [
      "a.md:1 README.md#bottom: README.md has no such heading",
    ]);
  });
  test("finds a file named in text that is gone, except in records", () => {
    const text = "See `core/gone.ts`.";
    assert.deepEqual(run(checkLinks, { "README.md": text }), ["README.md:1 core/gone.ts does not exist"]);
    const records = { "docs/README.md": "[r](design/decisions/0001-a.md)", "docs/design/decisions/0001-a.md": text };
    assert.deepEqual(run(checkLinks, records), []);
  });
  test("finds a page that nobody links to", () => {
    assert.equal(run(checkLinks, { ...pages, "docs/using/a.md": "# A" }).length, 1);
  });
});

describe("checkGlossary", () => {
  const glossary =
    "| Word | Meaning | Not |\n|---|---|---|\n| `edge` | a daemon | worker node |\n| `base` | a part | |\n";
  const architecture = "## Words\n\n`edge` a daemon · `base` a part.\nKeep it.\n";
  const texts = { "docs/glossary.md": glossary, "docs/design/architecture.md": architecture };
  test("takes the words of the architecture", () => assert.deepEqual(run(checkGlossary, texts), []));
  test("finds a word that it does not explain", () => {
    const more = { ...texts, "docs/design/architecture.md": architecture.replace("`base`", "`basis`") };
    assert.deepEqual(run(checkGlossary, more), ["docs/glossary.md:1 basis is not explained"]);
  });
  test("finds a replaced word, in the plural too, outside code", () => {
    const more = { ...texts, "README.md": "Worker nodes run.\n\n```\nworker node\n```\n" };
    assert.deepEqual(run(checkGlossary, more), ["README.md:1 say edge, not worker node"]);
  });
});

describe("checkFigures", () => {
  const specification = "| Figure | What | Bound |\n|---|---|---|\n| `create.rate` | creates | ≥ 1,000 1/s |\n";
  const figures = "# head\ncreate\tcreate.rate\t>=\t1000\t1/s\tcreates\n";
  const texts = { "SPECIFICATION.md": specification, "bench/figures.tsv": figures, "bench/create.ts": "" };
  test("takes equal promises", () => assert.deepEqual(run(checkFigures, texts), []));
  test("finds a promise that nobody measures", () =>
    assert.equal(run(checkFigures, { ...texts, "bench/figures.tsv": "" }).length, 1));
  test("finds a measured figure that nobody promised", () =>
    assert.equal(run(checkFigures, { ...texts, "SPECIFICATION.md": "" }).length, 1));
  test("finds two bounds", () => {
    const other = { ...texts, "SPECIFICATION.md": specification.replace("1,000", "900") };
    assert.deepEqual(run(checkFigures, other), [
      "SPECIFICATION.md:1 create.rate: ≥ 900 1/s here, ≥ 1,000 1/s in bench/figures.tsv",
    ]);
  });
  test("finds a bench that does not exist", () => {
    const { "bench/create.ts": _, ...rest } = texts;
    assert.equal(run(checkFigures, rest).length, 1);
  });
});
