import { SandboxError } from "#core/errors.ts";
import { eventFormOf, LINES } from "../event-forms.ts";
import type { Handlers, Services } from "../handler.ts";
import { jsonLines } from "../json-lines.ts";
import { sendBytes } from "../stream.ts";
import { usageView } from "../views.ts";

const DEFAULT_PERIOD_MS = 1_000;

type Names = "sandboxUsage" | "followUsage";

/** The calls about what sandboxes use. */
export function usageHandlers({ access }: Services): Pick<Handlers, Names> {
  return {
    async sandboxUsage({ principal, params, scope: { signal } }) {
      const { id, node } = await access.reach(principal, params.id ?? "", signal);
      for await (const usage of node.usage(id, { periodMs: undefined }, signal)) return usageView(usage);
      throw new SandboxError("Internal", "the node gave no sample");
    },

    async followUsage({ principal, params, query: { periodMs = DEFAULT_PERIOD_MS }, request, response, scope }) {
      const { id, node } = await access.reach(principal, params.id ?? "", scope.signal);
      const form = eventFormOf(request.headers) ?? LINES;
      const lines = jsonLines(node.usage(id, { periodMs }, scope.signal), usageView, { form });
      await sendBytes(lines, response, scope, form.mediaType);
    },
  };
}
