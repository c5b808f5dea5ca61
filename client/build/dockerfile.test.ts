import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import type { TreeEntry } from "#core/tar/entry.ts";
import { archive, pax } from "#core/tar/test-support/fixtures.ts";
import { changedTree } from "./changed-tree.ts";
import { BuildContext } from "./context.ts";
import { parseDockerfile } from "./dockerfile.ts";
import { expandBody, expandPairs, expandText, expandWords } from "./expand.ts";
import { globToRegExp, ignoreRules, isIgnored } from "./patterns.ts";
import { planStages } from "./stages.ts";

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
    const { globals, stages, escapeMark } = parseDockerfile(text);
    const [stage = assert.fail("no stage")] = stages;
    const instructions = [...globals, stage.from, ...stage.instructions];
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
    assert.equal(parseDockerfile("# escape=`\nFROM x\nRUN a `\n b").stages[0]?.instructions[0]?.text, "a  b");
  });

  for (const [text, message] of [
    ["", /line 1: the first instruction/],
    ["RUN x", /line 1: the first instruction/],
    ["FROM a AS", /line 1: FROM takes a name/],
    ["FROM a AS 1x", /line 1: 1x is no name of a stage/],
    ["FROM a AS b\nFROM c AS B", /line 2: there is a stage B already/],
    ["FROM a\nADD --from=b c d", /line 2: ADD --from/],
    ["FROM a\nRUN cat <<EOF\nx\n EOF", /line 2: the here-document EOF has no end/],
    ["FROM a\n\nVOLUME /x", /line 3: VOLUME is not supported/],
    ["FROM a\nHEALTHCHECK NONE", /line 2: HEALTHCHECK/],
    ["FROM a\nRUN --mount=type=cache,target=/x y", /line 2: RUN --mount/],
    ["FROM --platform=linux/arm64 a", /line 1: FROM --platform/],
    ["FROM a\nRUN", /line 2: RUN needs/],
    ["# escape=x\nFROM a", /line 1: escape/],
  ] as const) {
    test(`is refused with its line: ${JSON.stringify(text)}`, () => {
      assert.throws(() => parseDockerfile(text), { kind: "InvalidArgument", message });
    });
  }
});

describe("here-documents", () => {
  test("follow their instruction, in the order of their marks; quoted marks and here-strings are none", () => {
    const text = [
      "FROM a",
      "RUN cat <<A >x && cat <<-'B' >y",
      "# of $A",
      "A",
      "\t\tof B",
      "\tB",
      "RUN cat <<<word; echo \"<<C\" '<<D' \\<<E",
      'RUN ["cat", "<<F"]',
      'COPY <<one <<"two" /dir/',
      "one",
      "two",
      "ENV X=<<G",
    ].join("\n");
    const [stage = assert.fail("no stage")] = parseDockerfile(text).stages;
    assert.deepEqual(
      stage.instructions.map(({ line, documents }) => [line, documents]),
      [
        [
          2,
          [
            { name: "A", text: "# of $A\n", expands: true },
            { name: "B", text: "of B\n", expands: false },
          ],
        ],
        [7, []],
        [8, []],
        [
          9,
          [
            { name: "one", text: "", expands: true },
            { name: "two", text: "", expands: false },
          ],
        ],
        [12, []],
      ],
    );
  });

  test("keep their quotes when variables are put in", () => {
    // biome-ignore lint/suspicious/noTemplateCurlyInString: the syntax of the file
    assert.equal(expandBody("\"$A\" '${A}' \\$A \\n \\\\ $", { A: "1" }, "\\"), "\"1\" '1' $A \\n \\ $");
  });
});

describe("stages", () => {
  const settings = { buildArgs: {}, globals: { BASE: "debian:12" }, escapeMark: "\\" };
  const planned = (...lines: readonly string[]) => planStages(parseDockerfile(lines.join("\n")), settings);

  test("are built when the last one needs them, by name or number, through other stages too", () => {
    const plans = planned(
      "FROM $BASE AS One",
      "FROM one",
      "FROM nothing AS unused",
      "FROM b",
      "COPY --from=1 x y",
      "COPY --from=ONE x y",
      "COPY --from=tools:v1 x y",
    );
    assert.deepEqual(
      plans.map(({ index, from, copies }) => [index, from, [...copies.values()]]),
      [
        [0, { type: "artifact", reference: "debian:12" }, []],
        [1, { type: "stage", index: 0 }, []],
        [
          3,
          { type: "artifact", reference: "b" },
          [
            { type: "stage", index: 1 },
            { type: "stage", index: 0 },
            { type: "artifact", reference: "tools:v1" },
          ],
        ],
      ],
    );
  });

  for (const [lines, message] of [
    [["FROM scratch"], /line 1: FROM scratch/],
    [["FROM $NONE"], /line 1: FROM \$NONE names nothing/],
    [["FROM a AS x", "COPY --from=x b c"], /line 2: the stage x does not come before/],
    [["FROM a", "COPY --from=1 b c", "FROM d"], /line 2: the stage 1 does not come before/],
    [["FROM a", "COPY --from=$X b c"], /line 2: "\$X" names no stage/],
  ] as const) {
    test(`are refused with their line: ${lines.join("; ")}`, () => {
      assert.throws(() => planned(...lines), { kind: "InvalidArgument", message });
    });
  }
});

test("a changed tree is the same archive but for what was changed: long names, attributes, holes", async () => {
  const tar = archive(
    { path: "./", flag: "5" },
    { path: "./d/", flag: "5", mode: 0o700, uid: 5 },
    pax({ path: `./d/${"n".repeat(200)}`, "SCHILY.xattr.user.x": "y", mtime: "5.25" }),
    { path: "cut", body: "data" },
    { path: "./link", flag: "2", target: "d" },
    { path: "./again", flag: "1", target: `./d/${"n".repeat(90)}` },
  );
  const told: TreeEntry[] = [];
  const copy = changedTree(inPieces(tar), (entry) => (entry.path === "./" ? undefined : { ...entry, uid: 7 }));
  const again = changedTree(copy, (entry) => {
    told.push(entry);
    return entry;
  });
  const bytes = Buffer.concat(await Array.fromAsync(again));
  assert.deepEqual(
    told.map(({ path, type, uid, mtimeNs }) => [path, type, uid, mtimeNs]),
    [
      ["./d/", "directory", 7, 0],
      [`./d/${"n".repeat(200)}`, "file", 7, 250_000_000],
      ["./link", "symlink", 7, 0],
      ["./again", "link", 7, 0],
    ],
  );
  assert.deepEqual(
    [...(told[1]?.xattrs ?? [])].map(([name, value]) => [name, `${Buffer.from(value)}`]),
    [["user.x", "y"]],
  );
  assert.ok(bytes.includes("data"));
});

async function* inPieces(bytes: Buffer): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += 100) yield bytes.subarray(at, at + 100);
}

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
