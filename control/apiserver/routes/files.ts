import type { FileView } from "#api/index.ts";
import { SandboxError } from "#core/errors.ts";
import type { FileTarget } from "#core/node.ts";
import type { Handlers, Services } from "../handler.ts";
import { bodyOf, sendBytes } from "../stream.ts";
import { fileView } from "../views.ts";

/** A list is one JSON value: beyond this a sandbox could fill the server's memory with names. */
const MAX_ENTRIES = 200_000;
const FILE_MODE = "644";
const DIRECTORY_MODE = "755";

type Names = "readFile" | "writeFile" | "removeFile" | "listFiles" | "statFile" | "makeDirectory";

/** The calls about files in a sandbox. */
export function fileHandlers({ access }: Services): Pick<Handlers, Names> {
  return {
    async readFile({ principal, params, query, response, scope }) {
      const { id, node } = await access.reach(principal, params.id ?? "", scope.signal);
      const read = { ...targetOf(query), offset: query.offset ?? 0, length: query.length };
      await sendBytes(node.readFile(id, read, scope.signal), response, scope);
    },

    async writeFile({ principal, params, query, request, scope }) {
      const { id, node } = await access.reach(principal, params.id ?? "", scope.signal);
      const write = { ...targetOf(query), ...placeOf(query, FILE_MODE) };
      return await node.writeFile(id, write, bodyOf(request, scope), scope.signal);
    },

    async removeFile({ principal, params, query, scope: { signal } }) {
      const { id, node } = await access.reach(principal, params.id ?? "", signal);
      await node.remove(id, { ...targetOf(query), recursive: query.recursive ?? false }, signal);
    },

    async listFiles({ principal, params, query, scope: { signal } }) {
      const { id, node } = await access.reach(principal, params.id ?? "", signal);
      const entries: FileView[] = [];
      for await (const entry of node.listFiles(id, targetOf(query), signal)) {
        if (entries.length === MAX_ENTRIES) throw tooMany();
        entries.push(fileView(entry));
      }
      return { entries };
    },

    async statFile({ principal, params, query, scope: { signal } }) {
      const { id, node } = await access.reach(principal, params.id ?? "", signal);
      return fileView(await node.stat(id, targetOf(query), signal));
    },

    async makeDirectory({ principal, params, query, scope: { signal } }) {
      const { id, node } = await access.reach(principal, params.id ?? "", signal);
      await node.makeDirectory(id, { ...targetOf(query), ...placeOf(query, DIRECTORY_MODE) }, signal);
    },
  };
}

function tooMany(): SandboxError {
  return new SandboxError("TooLarge", `the directory has more than ${MAX_ENTRIES} entries`, {
    hint: "list it with a command in the sandbox",
  });
}

function targetOf({ path, user }: { readonly path: Uint8Array; readonly user?: string }): FileTarget {
  return { path, user };
}

function placeOf({ mode, parents }: { readonly mode?: string; readonly parents?: boolean }, standard: string) {
  return { mode: Number.parseInt(mode ?? standard, 8), parents: parents ?? false };
}
