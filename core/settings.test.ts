import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { SandboxError } from "#core/errors.ts";
import { choice, durationMs, flag, integer, mebibytes, path, text } from "#core/setting-kinds.ts";
import { defineSettings } from "#core/settings.ts";

const load = defineSettings(
  "EDGE",
  {
    listen: text("127.0.0.1:7070", "Address of the API."),
    name: text(undefined, "Name."),
    dataDir: path("/var/lib/edge", "Where things stay."),
    reservedMemory: mebibytes("4GiB", "Never promised."),
    diskLimit: mebibytes(undefined, "Most disk."),
    heartbeatEvery: durationMs("2s", "How often."),
    slots: integer("100", "How many.", { min: 1, max: 1000 }),
    keep: flag(false, "Keep sandboxes."),
  },
  { foreignEnv: ["TOKEN"] },
);

function refuses(action: () => unknown, ...words: readonly string[]): void {
  assert.throws(action, (error) => {
    assert.ok(error instanceof SandboxError);
    assert.equal(error.kind, "InvalidArgument");
    for (const word of words) assert.ok(error.message.includes(word), `${error.message} names ${word}`);
    return true;
  });
}

describe("settings", () => {
  test("the table gives the defaults, parsed", () => {
    assert.deepEqual(load({}), {
      listen: "127.0.0.1:7070",
      name: undefined,
      dataDir: "/var/lib/edge",
      reservedMemory: 4096,
      diskLimit: undefined,
      heartbeatEvery: 2000,
      slots: 100,
      keep: false,
    });
  });

  test("flag beats environment beats file beats table", () => {
    const file = { name: "edge.json", text: '{"version":1,"slots":2,"listen":"file","name":"file"}' };
    const env = { EDGE_SLOTS: "3", EDGE_LISTEN: "env" };
    const values = load({ file, env, argv: ["--slots", "4"] });
    assert.deepEqual([values.slots, values.listen, values.name], [4, "env", "file"]);
  });

  test("a flag takes its value after a blank or an equals sign, the last one wins", () => {
    assert.equal(load({ argv: ["--data-dir=/a=b", "--data-dir", "/c"] }).dataDir, "/c");
    assert.equal(load({ argv: ["--data-dir=/a=b"] }).dataDir, "/a=b");
    assert.equal(load({ argv: ["--keep"] }).keep, true);
    assert.equal(load({ argv: ["--keep", "--no-keep"] }).keep, false);
    assert.equal(load({ argv: ["--keep=true"] }).keep, true);
  });

  test("an unknown key is an error wherever it stands", () => {
    refuses(() => load({ argv: ["--sltos", "3"] }), "--sltos");
    refuses(() => load({ argv: ["--no-slots"] }), "--no-slots");
    refuses(() => load({ env: { EDGE_SLTOS: "3" } }), "EDGE_SLTOS");
    refuses(() => load({ file: { name: "edge.json", text: '{"version":1,"sltos":3}' } }), "sltos in edge.json");
    refuses(() => load({ argv: ["--to-string", "x"] }), "--to-string");
    refuses(() => load({ argv: ["extra"] }), "extra");
  });

  test("names of others in the environment are left alone", () => {
    assert.equal(load({ env: { EDGE_TOKEN: "secret", OTHER: "1", PATH: "/bin" } }).slots, 100);
  });

  test("a value of the wrong form names its key and what would be right", () => {
    refuses(() => load({ argv: ["--slots", "0"] }), "--slots", "1 to 1000");
    refuses(() => load({ argv: ["--slots", "1e3"] }), "--slots");
    refuses(() => load({ argv: ["--slots"] }), "--slots needs a value");
    refuses(() => load({ env: { EDGE_RESERVED_MEMORY: "512" } }), "EDGE_RESERVED_MEMORY", "512MiB");
    refuses(() => load({ env: { EDGE_RESERVED_MEMORY: "0MiB" } }), "EDGE_RESERVED_MEMORY");
    refuses(() => load({ env: { EDGE_HEARTBEAT_EVERY: "-2s" } }), "EDGE_HEARTBEAT_EVERY");
    refuses(() => load({ argv: ["--data-dir", ""] }), "--data-dir");
    refuses(() => load({ argv: ["--keep=maybe"] }), "--keep");
    refuses(() => load({ file: { name: "f", text: '{"version":1,"listen":4}' } }), "listen in f");
    refuses(() => load({ file: { name: "f", text: '{"version":1,"listen":[1]}' } }), "listen in f");
  });

  test("a file must be a JSON object of the known version", () => {
    for (const body of ["", "[]", "null", "{}", '{"version":2}']) {
      refuses(() => load({ file: { name: "edge.json", text: body } }), "edge.json");
    }
  });

  test("units are converted", () => {
    const values = load({ argv: ["--reserved-memory", "1.5GiB", "--disk-limit=2TiB", "--heartbeat-every", "1.5m"] });
    assert.deepEqual([values.reservedMemory, values.diskLimit, values.heartbeatEvery], [1536, 2_097_152, 90_000]);
  });

  test("help has each flag, its default and its name in the environment", () => {
    const help = load.help();
    assert.match(help, /--reserved-memory SIZE +Never promised\. \[4GiB\] \(EDGE_RESERVED_MEMORY\)/);
    assert.match(help, /--keep +Keep sandboxes/);
    assert.equal(help.trimEnd().split("\n").length, 8);
  });

  test("any text in any place gives values or InvalidArgument, nothing else", () => {
    const word = fc.oneof(
      fc.string(),
      fc.constantFrom("--slots", "--keep", "--listen=", "--__proto__", "--constructor"),
    );
    fc.assert(
      fc.property(fc.array(word), fc.string(), (argv, body) => {
        for (const sources of [{ argv }, { file: { name: "f", text: body } }, { env: { EDGE_SLOTS: body } }]) {
          try {
            load(sources);
          } catch (error) {
            assert.ok(error instanceof SandboxError && error.kind === "InvalidArgument");
          }
        }
      }),
    );
  });
});

test("choice takes its words and names them when it refuses", () => {
  const load = defineSettings("X", { mode: choice(["fast", "safe"], "safe", "How.") });
  assert.equal(load({ argv: [], env: {} }).mode, "safe");
  assert.equal(load({ argv: ["--mode=fast"], env: {} }).mode, "fast");
  assert.throws(() => load({ argv: ["--mode=slow"], env: {} }), /--mode.*is none of fast, safe/);
});
