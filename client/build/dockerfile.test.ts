import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { BuildContext } from "./context.ts";
import { parseDockerfile } from "./dockerfile.ts";
import { expandPairs, expandText, expandWords } from "./expand.ts";
import { globToRegExp, ignoreRules, isIgnored } from "./patterns.ts";

describe("a Dockerfile", () => {
  test("is instructions with their lines: comments, continuations, flags and both forms", () => {
    const text = [
      "# a comment",
      "ARG BASE=debian",
      "from $BASE",
      "RUN one && \\",
      "  # within",
      "",
      "  two",
      'run ["a", "b c"]',
      "COPY --chown=1:2 --chmod=755 a b /c/",
      'CMD ["not", json]',
    ].join("\n");
    const { instructions, escapeMark } = parseDockerfile(text);
    assert.equal(escapeMark, "\\");
    assert.deepEqual(
      instructions.map(({ line, name, text: rest, words }) => [line, name, rest, words]),
      [
        [2, "ARG", "BASE=debian", undefined],
        [3, "FROM", "$BASE", undefined],
        [4, "RUN", "one &&   two", undefined],
        [8, "RUN", '["a", "b c"]', ["a", "b c"]],
        [9, "COPY", "a b /c/", undefined],
        [10, "CMD", '["not", json]', undefined],
      ],
    );
    assert.deepEqual(
      [...(instructions[4]?.flags ?? [])],
      [
        ["chown", "1:2"],
        ["chmod", "755"],
      ],
    );
    assert.equal(parseDockerfile("# escape=`\nFROM x\nRUN a `\n b").instructions[1]?.text, "a  b");
  });

  for (const [text, message] of [
    ["", /line 1: the first instruction/],
    ["RUN x", /line 1: the first instruction/],
    ["FROM a\nFROM b", /line 2: a build has one stage/],
    ["FROM a\n\nVOLUME /x", /line 3: VOLUME is not supported/],
    ["FROM a\nHEALTHCHECK NONE", /line 2: HEALTHCHECK/],
    ["FROM a\nRUN --mount=type=cache,target=/x y", /line 2: RUN --mount/],
    ["FROM a\nCOPY --from=b c d", /line 2: COPY --from/],
    ["FROM --platform=linux/arm64 a", /line 1: FROM --platform/],
    ["FROM a\nRUN cat <<EOF\nEOF", /line 2: here-documents/],
    ["FROM a\nRUN", /line 2: RUN needs/],
    ["# escape=x\nFROM a", /line 1: escape/],
  ] as const) {
    test(`is refused with its line: ${JSON.stringify(text)}`, () => {
      assert.throws(() => parseDockerfile(text), { kind: "InvalidArgument", message });
    });
  }
});

describe("variables", () => {
  const variables = { A: "1", E: "", S: "a b" };
  test("are put in but for single quotes and escapes, and words stay whole", () => {
    assert.equal(expandText(`$A \${A} "$S" '$A' \\$A $none`, variables, "\\"), "1 1 a b $A $A ");
    assert.deepEqual(expandWords(`a"b c"d '' x\\ y $S`, variables, "\\"), ["ab cd", "", "x y", "a b"]);
    // biome-ignore lint/suspicious/noTemplateCurlyInString: the syntax of the file
    assert.equal(expandText("${E:-$A} ${A:-x} ${A:+y} ${E:+z}", variables, "\\"), "1 1 y ");
    assert.deepEqual(expandPairs(`X=1 Y="a b" Z=$A`, variables, "\\"), [
      ["X", "1"],
      ["Y", "a b"],
      ["Z", "1"],
    ]);
    assert.deepEqual(expandPairs("X a  b", variables, "\\"), [["X", "a b"]]);
  });

  test("that cannot be read are refused", () => {
    // biome-ignore lint/suspicious/noTemplateCurlyInString: the syntax of the file
    for (const bad of ['"open', "'open", "${A", "${A?x}"]) assert.throws(() => expandText(bad, variables, "\\"), bad);
    assert.throws(() => expandPairs("A=1 B", variables, "\\"), /B/);
  });
});

test("patterns stay within a name but for **, and the last rule of a .dockerignore that matches decides", () => {
  assert.ok(globToRegExp("a/*.ts").test("a/b.ts") && !globToRegExp("a/*.ts").test("a/b/c.ts"));
  assert.ok(globToRegExp("**/x").test("x") && globToRegExp("**/x").test("a/b/x") && !globToRegExp("**/x").test("ax"));
  const rules = ignoreRules("# no\nnode_modules\n*.log\n!keep.log\n/dist/\n**/.git\n");
  const ignored = ["node_modules/a/b", "x.log", "dist/y", "a/.git/config"];
  for (const path of ignored) assert.ok(isIgnored(path, rules), path);
  for (const path of ["keep.log", "a/x.log", "src/dist"]) assert.ok(!isIgnored(path, rules), path);
});

test("a context gives what a COPY names, never through links, and its digest knows content, modes and names only", async () => {
  const root = mkdtempSync(join(tmpdir(), "dsec-context-"));
  try {
    mkdirSync(join(root, "src/deep"), { recursive: true });
    for (const name of ["a.txt", "b.txt", "src/c", "src/deep/d", "secret"]) writeFileSync(join(root, name), name);
    writeFileSync(join(root, ".dockerignore"), "secret\n");
    symlinkSync("/etc", join(root, "etc"));
    const context = new BuildContext(root);
    const names = (source: string) => context.select(source).map(({ name }) => name);
    assert.deepEqual(names("*.txt"), ["a.txt", "b.txt"]);
    assert.deepEqual(names("src"), ["c", "deep", "deep/d"]);
    assert.deepEqual(names("./src/c"), ["c"]);
    assert.deepEqual(names("etc"), ["etc"]);
    assert.ok(names(".").includes("src/deep/d") && !names(".").includes("secret"));
    for (const missing of ["secret", "etc/passwd", "none"])
      assert.throws(() => context.select(missing), { kind: "NotFound" });
    assert.throws(() => context.select("../x"), { kind: "InvalidArgument" });
    const before = await context.digest(context.select("src"));
    writeFileSync(join(root, "src/c"), "src/c");
    assert.equal(await new BuildContext(root).digest(context.select("src")), before);
    writeFileSync(join(root, "src/c"), "other");
    assert.notEqual(await context.digest(context.select("src")), before);
  } finally {
    rmSync(root, { recursive: true });
  }
});
