import { failureOf } from "./failure.ts";
import type { Services } from "./handler.ts";

/** Lines of JSON: progress as it comes, then what `work` resolves with, or why it failed. Never rejects. */
export async function* progressLines(
  { log }: Pick<Services, "log">,
  work: (progress: (line: string) => void) => Promise<object>,
): AsyncGenerator<Uint8Array> {
  const events: object[] = [];
  let wake = Promise.withResolvers<void>();
  let isDone = false;
  const tell = (event: object) => {
    events.push(event);
    wake.resolve();
  };
  const worked = work((line) => tell({ progress: line }))
    .catch((error: unknown) => {
      const { body, typed } = failureOf(error);
      if (typed.kind === "Internal") log.error({ err: error }, "what was asked for could not be made");
      return body;
    })
    .then((event) => {
      isDone = true;
      tell(event);
    });
  while (!isDone || events.length > 0) {
    await wake.promise;
    wake = Promise.withResolvers<void>();
    for (const event of events.splice(0)) yield Buffer.from(`${JSON.stringify(event)}\n`);
  }
  await worked;
}
