import type { FileInfo } from "#core/sandbox.ts";
import { sendFile } from "../file-stream.ts";
import type { Handlers, Services } from "../handler.ts";
import { bodyOf, sendBytes } from "../stream.ts";
import { fileView } from "../views.ts";

const FILE_MODE = "644";
const DIRECTORY_MODE = "755";

type Names =
  | "readFile"
  | "writeFile"
  | "removeFile"
  | "listFiles"
  | "statFile"
  | "makeDirectory"
  | "changeMode"
  | "changeOwner"
  | "makeLink"
  | "moveFile";

/** The calls about files in a sandbox. */
export function fileHandlers({ access }: Services): Pick<Handlers, Names> {
  return {
    async readFile({ principal, params, query: { path, user, offset = 0, length }, response, scope }) {
      const { id, node } = await access.reach(principal, params.id ?? "", scope.signal);
      await sendFile(node.readFile(id, { path, user, offset, length }, scope.signal), response, scope);
    },

    async writeFile({ principal, params, query, request, scope }) {
      const { id, node } = await access.reach(principal, params.id ?? "", scope.signal);
      const { path, user, mode = FILE_MODE, parents = false } = query;
      const write = { path, user, mode: modeOf(mode), parents };
      return await node.writeFile(id, write, bodyOf(request, scope), scope.signal);
    },

    async removeFile({ principal, params, query: { path, user, recursive = false }, scope: { signal } }) {
      const { id, node } = await access.reach(principal, params.id ?? "", signal);
      await node.changeFile(id, { type: "remove", path, user, recursive }, signal);
    },

    async listFiles({ principal, params, query: { path, user, depth = 1, hidden = true }, response, scope }) {
      const { id, node } = await access.reach(principal, params.id ?? "", scope.signal);
      const batches = node.listFiles(id, { path, user, depth, hidden }, scope.signal);
      await sendBytes(linesOf(batches), response, scope, "application/x-ndjson");
    },

    async statFile({ principal, params, query: { path, user }, scope: { signal } }) {
      const { id, node } = await access.reach(principal, params.id ?? "", signal);
      return fileView(await node.stat(id, { path, user }, signal));
    },

    async makeDirectory({ principal, params, query, scope: { signal } }) {
      const { id, node } = await access.reach(principal, params.id ?? "", signal);
      const { path, user, mode = DIRECTORY_MODE, parents = false } = query;
      await node.changeFile(id, { type: "mkdir", path, user, mode: modeOf(mode), parents }, signal);
    },

    async changeMode({ principal, params, query: { path, user, mode }, scope: { signal } }) {
      const { id, node } = await access.reach(principal, params.id ?? "", signal);
      await node.changeFile(id, { type: "chmod", path, user, mode: modeOf(mode) }, signal);
    },

    async changeOwner({ principal, params, query: { path, user, owner }, scope: { signal } }) {
      const { id, node } = await access.reach(principal, params.id ?? "", signal);
      await node.changeFile(id, { type: "chown", path, user, owner }, signal);
    },

    async makeLink({ principal, params, query: { path, user, target, parents = false }, scope: { signal } }) {
      const { id, node } = await access.reach(principal, params.id ?? "", signal);
      await node.changeFile(id, { type: "symlink", path, user, target, parents }, signal);
    },

    async moveFile({ principal, params, query, scope: { signal } }) {
      const { id, node } = await access.reach(principal, params.id ?? "", signal);
      const { path, user, to, replace = true, parents = false } = query;
      await node.changeFile(id, { type: "move", path, user, target: to, replace, parents }, signal);
    },
  };
}

/** Entries as JSON, one a line; a batch is as much as came from the sandbox at once. */
async function* linesOf(batches: AsyncIterable<readonly FileInfo[]>): AsyncGenerator<Uint8Array> {
  for await (const batch of batches) {
    if (batch.length > 0) yield Buffer.from(batch.map((entry) => `${JSON.stringify(fileView(entry))}\n`).join(""));
  }
}

function modeOf(octal: string): number {
  return Number.parseInt(octal, 8);
}
