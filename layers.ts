/**
 * Who may import whom: the folder table of `docs/design/architecture.md` as data.
 *
 * `tools/check-layers.ts` compares every import of the tree with it and fails on the first one it does not allow. The
 * longest matching prefix names the layer of a file. A layer may always import itself.
 */
export const LAYERS: Readonly<Record<string, readonly string[]>> = {
  core: [],
  "core/tar": ["core"],
  api: ["core"],
  "guest/protocol": ["core"],
  host: ["core"],
  images: ["core", "core/tar", "host"],
  "backends/fake": ["core"],
  "backends/container": ["core", "host", "guest/protocol", "images"],
  "backends/microvm": ["core", "host", "guest/protocol", "images"],
  "backends/vm": ["core", "host", "guest/protocol", "images"],
  "backends/fncall": ["core"],
  edge: ["core"],
  control: ["core", "core/tar", "api", "images"],
  "client/sdk": ["api"],
  "client/build": ["client/sdk", "core/tar"],
  "client/cli": ["client/sdk", "client/build", "core/tar"],
  bin: [
    "core",
    "api",
    "host",
    "images",
    "backends/container",
    "backends/microvm",
    "backends/vm",
    "backends/fake",
    "backends/fncall",
    "edge",
    "control",
    "client/sdk",
    "client/build",
    "client/cli",
  ],
  bench: [
    "core",
    "core/tar",
    "api",
    "host",
    "images",
    "backends/container",
    "backends/microvm",
    "backends/vm",
    "backends/fake",
    "backends/fncall",
    "edge",
    "control",
    "client/sdk",
    "client/build",
    "client/cli",
    "bin",
    "guest/protocol",
    "tests",
  ],
  tests: [
    "core",
    "core/tar",
    "api",
    "host",
    "images",
    "backends/container",
    "backends/microvm",
    "backends/vm",
    "backends/fake",
    "backends/fncall",
    "edge",
    "control",
    "client/sdk",
    "client/build",
    "client/cli",
    "bin",
    "guest/protocol",
  ],
  tools: [],
};

/** Layers that may be imported for their types only: nothing of them runs in the importer. */
export const TYPE_ONLY: Readonly<Record<string, readonly string[]>> = {
  "client/sdk": ["api"],
};

/** Built-in modules that reach outside the process. A layer that is absent here may import any of them. */
export const PURE_LAYERS: readonly string[] = ["core", "control/placement"];
