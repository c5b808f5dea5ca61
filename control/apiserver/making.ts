import type { BuildEvent } from "#api/index.ts";
import type { NewArtifact } from "#images/catalogue.ts";
import { failureOf } from "./failure.ts";
import type { Services } from "./handler.ts";
import { artifactView } from "./views.ts";

/** An artifact to be made under a name. */
export interface Making {
  readonly project: string;
  readonly name: string;
  make(progress: (line: string) => void): Promise<NewArtifact>;
}

/** Lines of JSON: progress as it comes, then the artifact under its name, or why there is none. Never rejects. */
export async function* makingEvents(services: Services, making: Making): AsyncGenerator<Uint8Array> {
  const events: BuildEvent[] = [];
  let wake = Promise.withResolvers<void>();
  const tell = (event: BuildEvent) => {
    events.push(event);
    wake.resolve();
  };
  const made = making
    .make((line) => tell({ progress: line }))
    .then((artifact) => services.catalogue.put(making.project, making.name, artifact))
    .then((record) => tell({ artifact: artifactView(record) }))
    .catch((error: unknown) => {
      const { body, typed } = failureOf(error);
      if (typed.kind === "Internal") services.log.error({ err: error }, "an artifact could not be made");
      tell(body);
    });
  for (let done = false; !done; ) {
    await wake.promise;
    wake = Promise.withResolvers<void>();
    for (const event of events.splice(0)) {
      done ||= !("progress" in event);
      yield Buffer.from(`${JSON.stringify(event)}\n`);
    }
  }
  await made;
}
