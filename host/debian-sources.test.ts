import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { type AptSource, aptSources, hostSuite, sourceLine, sourcesOf } from "#host/debian-sources.ts";

const DEB822 = `Types: deb deb-src
URIs: http://a.example/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/a.gpg

Types: deb
URIs: http://s.example/security
Suites: bookworm-security
Components: main

Types: deb
Enabled: no
URIs: http://off.example
Suites: bookworm
Components: main

Types: deb-src
URIs: http://src.example
Suites: bookworm
Components: main
`;

const ONE_LINE = `# a comment
deb [arch=amd64 signed-by=/k.gpg] http://o.example/ubuntu noble main universe # why
deb-src http://o.example/ubuntu noble main
deb http://o.example/ubuntu noble-updates main
`;

function configuration(files: Readonly<Record<string, string>>): { readonly path: string } & Disposable {
  const path = mkdtempSync(join(tmpdir(), "dsec-apt-"));
  mkdirSync(join(path, "sources.list.d"));
  for (const [name, text] of Object.entries(files)) writeFileSync(join(path, name), text);
  return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true }) };
}

describe("the archives of a host", () => {
  test("are read from both formats, without sources of source code and those switched off", () => {
    using apt = configuration({
      "sources.list": ONE_LINE,
      "sources.list.d/debian.sources": DEB822,
      "sources.list.d/x.bak": ONE_LINE,
    });
    assert.deepEqual(aptSources(apt.path).map(sourceLine), [
      "deb [signed-by=/k.gpg] http://o.example/ubuntu noble main universe",
      "deb http://o.example/ubuntu noble-updates main",
      "deb [signed-by=/usr/share/keyrings/a.gpg] http://a.example/debian bookworm main contrib",
      "deb [signed-by=/usr/share/keyrings/a.gpg] http://a.example/debian bookworm-updates main contrib",
      "deb http://s.example/security bookworm-security main",
    ]);
  });

  test("are none where apt is not set up", () => {
    assert.deepEqual(aptSources("/nonexistent"), []);
    assert.equal(hostSuite("/nonexistent"), undefined);
  });

  const all: readonly AptSource[] = ["bookworm", "bookworm-updates", "bookworm-security", "nodistro"].map((suite) => ({
    uri: `http://${suite}.example`,
    suite,
    components: ["main"],
    signedBy: undefined,
  }));

  test("serve the host's own suite with updates and security, and nothing of third parties", () => {
    const suites = sourcesOf("bookworm", "bookworm", all).map(({ suite }) => suite);
    assert.deepEqual(suites, ["bookworm", "bookworm-updates", "bookworm-security"]);
  });

  test("serve another suite of the distribution, and a rolling one without pockets", () => {
    assert.deepEqual(
      sourcesOf("trixie", "bookworm", all).map(({ uri, suite }) => `${uri} ${suite}`),
      [
        "http://bookworm.example trixie",
        "http://bookworm-updates.example trixie-updates",
        "http://bookworm-security.example trixie-security",
      ],
    );
    assert.deepEqual(
      sourcesOf("sid", "bookworm", all).map(({ suite }) => suite),
      ["sid"],
    );
  });
});
