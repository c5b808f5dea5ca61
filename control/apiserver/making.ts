import type { NewArtifact } from "#images/catalogue.ts";
import type { Services } from "./handler.ts";
import { progressLines } from "./progress-lines.ts";
import { artifactView } from "./views.ts";

/** An artifact to be made under a name. */
export interface Making {
  readonly project: string;
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  make(progress: (line: string) => void): Promise<NewArtifact>;
}

/** Lines of JSON: progress as it comes, then the artifact under its name, or why there is none. Never rejects. */
export function makingEvents(services: Services, { labels, make, name, project }: Making): AsyncGenerator<Uint8Array> {
  return progressLines(services, async (progress) => ({
    artifact: artifactView(await services.catalogue.put(project, name, { ...(await make(progress)), labels })),
  }));
}
