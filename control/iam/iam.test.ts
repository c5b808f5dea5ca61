import assert from "node:assert/strict";
import { test } from "node:test";
import { ManualClock } from "#core/clock.ts";
import { MemoryState } from "../state/memory.ts";
import { allows, authorize, DEFAULT_PROJECT, Iam, type Principal } from "./iam.ts";
import { bearer, newToken, sameHash, tokenHash } from "./token.ts";

async function started() {
  const state = new MemoryState();
  const iam = new Iam(state, new ManualClock());
  const root = await iam.bootstrap();
  assert.ok(root !== undefined);
  return { state, iam, root };
}

test("the first start makes a root token, later ones none", async () => {
  const { iam, root } = await started();
  assert.match(root, /^dsec_[\w-]{43}$/);
  assert.equal(await iam.bootstrap(), undefined);
  assert.deepEqual(await iam.authenticate(`Bearer ${root}`), { name: "root", project: DEFAULT_PROJECT, role: "admin" });
});

test("a start that was killed after making the project still gives a token", async () => {
  const state = new MemoryState();
  const iam = new Iam(state, new ManualClock());
  await iam.createProject(DEFAULT_PROJECT);
  assert.ok((await iam.bootstrap()) !== undefined);
});

test("the store never holds a token", async () => {
  const { state, root } = await started();
  const all = JSON.stringify(await state.list(""));
  assert.ok(!all.includes(root) && !all.includes(root.slice(5)));
});

test("every other header is refused in the same words", async () => {
  const { iam, root } = await started();
  const other = newToken();
  const changed = root.slice(0, -1) + (root.endsWith("A") ? "B" : "A");
  const messages = new Set<string>();
  for (const text of [other, changed, root.slice(0, -1), `${root}x`, "dsec_", "x", "../project/default"]) {
    await assert.rejects(iam.authenticate(`Bearer ${text}`), (error: Error & { kind?: string; hint?: string }) => {
      messages.add(error.message);
      return error.kind === "Unauthenticated" && error.hint !== undefined;
    });
  }
  assert.equal(messages.size, 1);
  for (const header of [undefined, "", root, `Basic ${root}`, `Bearer ${root} ${root}`, "Bearer"]) {
    await assert.rejects(iam.authenticate(header), { kind: "Unauthenticated" });
  }
});

test("a revoked token stops working at once, again and again", async () => {
  const { iam } = await started();
  const token = await iam.createToken({ name: "ci", project: DEFAULT_PROJECT, role: "member" });
  assert.equal((await iam.authenticate(`bearer  ${token}`)).name, "ci");
  await iam.revokeToken(token);
  await iam.revokeToken(token);
  await assert.rejects(iam.authenticate(`Bearer ${token}`), { kind: "Unauthenticated" });
});

test("projects have names, are made once, and tokens need one", async () => {
  const { iam } = await started();
  await iam.createProject("team-a");
  await assert.rejects(iam.createProject("team-a"), { kind: "AlreadyExists" });
  for (const name of ["", "A", "a/b", "-a", "a".repeat(64), "ä"]) {
    await assert.rejects(iam.createProject(name), { kind: "InvalidArgument" });
  }
  await assert.rejects(iam.createToken({ name: "x", project: "none", role: "member" }), { kind: "NotFound" });
});

test("members act in their project and admins in all; only admins operate nodes", () => {
  const admin: Principal = { name: "root", project: DEFAULT_PROJECT, role: "admin" };
  const member: Principal = { name: "m", project: "a", role: "member" };
  assert.ok(allows(admin, "use", "a") && allows(admin, "operate", "a"));
  assert.ok(allows(member, "use", "a") && !allows(member, "use", "b") && !allows(member, "use", DEFAULT_PROJECT));
  assert.ok(!allows(member, "operate", "a"));
  assert.throws(() => authorize(member, "use", "b"), { kind: "PermissionDenied" });
  authorize(member, "use", "a");
});

test("hashes compare by content, and only tokens have one", () => {
  const hash = tokenHash(newToken());
  assert.ok(hash !== undefined && sameHash(hash, `${hash}`));
  assert.ok(!sameHash(hash, hash.replace(/.$/, "x")) && !sameHash(hash, ""));
  assert.equal(tokenHash("dsec_short"), undefined);
  assert.equal(bearer("Bearer a b"), undefined);
});
