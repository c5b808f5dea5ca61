import { WatchDecoder, type WatchEvent } from "#core/watch.ts";
import { eventFormOf, LINES } from "../event-forms.ts";
import { sendFile, withDigest } from "../file-stream.ts";
import type { Handlers, Services } from "../handler.ts";
import { jsonLines } from "../json-lines.ts";
import { bodyOf, sendBytes } from "../stream.ts";
import { type TreeWritten, tarOfTree, treeOfTar } from "../trees.ts";
import { watchView } from "../views.ts";

/** The calls about trees of files in a sandbox, and what happens in them. */
export function treeHandlers({ access }: Services): Pick<Handlers, "readTree" | "writeTree" | "watchFiles"> {
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

    async watchFiles({ principal, params, query: { path, user, recursive = false }, request, response, scope }) {
      const { id, node } = await access.reach(principal, params.id ?? "", scope.signal);
      const form = eventFormOf(request.headers) ?? LINES;
      const events = eventsOf(node.watchFiles(id, { path, user, recursive }, scope.signal));
      await sendBytes(jsonLines(events, watchView, { form }), response, scope, form.mediaType);
    },
  };
}

async function* eventsOf(source: AsyncIterable<Uint8Array>): AsyncGenerator<WatchEvent> {
  const decoder = new WatchDecoder();
  for await (const chunk of source) yield* decoder.push(chunk);
}
