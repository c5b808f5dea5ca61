import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { OPERATIONS, type Operation, type OperationName } from "#api/index.ts";
import { newCommandId } from "#core/ids.ts";
import { type Answer, memberOf, type Rig, rig } from "../test-support/rig.ts";

/** What a call must say to be more than malformed; a new call that needs something fails here until it is said. */
const QUERIES: Partial<Record<OperationName, string>> = {
  changeMode: "path=/x&mode=0644",
  changeOwner: "path=/x&owner=root",
  makeLink: "path=/x&target=/y",
  moveFile: "path=/x&to=/y",
  waitForPort: "port=80",
};
const BODIES: Partial<Record<OperationName, unknown>> = {
  startCommand: { shell: "id" },
  runLine: { line: "id" },
  signalCommand: { signal: "SIGKILL" },
  resizeTerminal: { rows: 1, cols: 1 },
  createPortTicket: { port: 80 },
  forkSandbox: { count: 1 },
  packSandbox: { name: "packed" },
  powerComputer: { action: "reset" },
  sendInput: { actions: [{ type: "text", text: "a" }] },
};
/** Calls that are connections. */
const CONNECTIONS: readonly OperationName[] = ["attachCommand", "openDisplay", "openConsole"];
const WEBSOCKET = { connection: "Upgrade", upgrade: "websocket" };

let api: Rig;
let token: string;
let id: string;

before(async () => {
  api = await rig({ portDomain: "ports.test" });
  token = await memberOf(api, "stranger");
  id = await api.sandbox();
});
after(() => api[Symbol.asyncDispose]());

/** Every call about one sandbox, but the removal, which what is not there does not keep from succeeding. */
const CALLS = (Object.entries(OPERATIONS) as [OperationName, Operation][]).filter(
  ([name, { path }]) => path.includes("{id}") && name !== "removeSandbox",
);

for (const [name, operation] of CALLS) {
  test(`${name}: a sandbox of another project is as one that there is not`, () =>
    isUnknown((sandbox) => ask(name, operation, sandbox)));
}

test("ports: those of another project's sandbox are as of one that there is not, in every form", async () => {
  const path = (sandbox: string) => `/v1/sandboxes/${sandbox}/ports/80`;
  const host = (sandbox: string) => `80-${sandbox}.ports.test`;
  await isUnknown((sandbox) => api.call("GET", `${path(sandbox)}/`, { token }));
  await isUnknown((sandbox) => api.call("GET", `${path(sandbox)}/`, { token, headers: WEBSOCKET }));
  await isUnknown((sandbox) => api.call("GET", path(sandbox), { token, headers: { ...WEBSOCKET, upgrade: "tcp" } }));
  await isUnknown((sandbox) => api.call("GET", "/", { token, headers: { host: host(sandbox) } }));
  await isUnknown((sandbox) => api.call("GET", "/", { token, headers: { host: host(sandbox), ...WEBSOCKET } }));
});

async function isUnknown(call: (sandbox: string) => Promise<Answer>): Promise<void> {
  const missing = id.replace(/-.*/, "-aaaaaaaaaaaaaaaa");
  const [foreign, unknown] = [await call(id), await call(missing)];
  assert.deepEqual([foreign.status, unknown.status], [404, 404], foreign.bytes.toString());
  assert.deepEqual(foreign.json.error.message.replace(id, missing), unknown.json.error.message);
}

function ask(name: OperationName, { method, path, body }: Operation, sandbox: string) {
  const values: Readonly<Record<string, string>> = { id: sandbox, command: newCommandId(), stream: "stdout" };
  const url = path.replaceAll(/\{(\w+)\}/g, (_, key: string) => values[key] ?? key);
  const query = QUERIES[name] ?? (path.includes("/files") ? "path=/x" : "");
  const json = typeof body === "string" ? {} : { json: BODIES[name] ?? {} };
  const headers = CONNECTIONS.includes(name) ? WEBSOCKET : {};
  return api.call(method, `${url}?${query}`, { token, headers, ...json });
}
