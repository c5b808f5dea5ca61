import { sendFile, withDigest } from "../file-stream.ts";
import type { Handlers, Services } from "../handler.ts";
import { bodyOf } from "../stream.ts";
import { type TreeWritten, tarOfTree, treeOfTar } from "../trees.ts";

/** The calls about trees of files in a sandbox. */
export function treeHandlers({ access }: Services): Pick<Handlers, "readTree" | "writeTree"> {
  return {
    async readTree({ principal, params, query: { path, user }, response, scope }) {
      const { id, node } = await access.reach(principal, params.id ?? "", scope.signal);
      const tar = tarOfTree(node.readTree(id, { path, user }, scope.signal));
      await sendFile(withDigest(tar), response, scope, "application/x-tar");
    },

    async writeTree({ principal, params, query: { path, user, owners = true }, request, scope }) {
      const { id, node } = await access.reach(principal, params.id ?? "", scope.signal);
      let written: TreeWritten | undefined;
      const tree = treeOfTar(bodyOf(request, scope), (told) => {
        written = told;
      });
      await node.writeTree(id, { path, user, owners }, tree, scope.signal);
      if (written === undefined) throw new Error("a tree was written before its archive was read");
      return written;
    },
  };
}
