import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { SandboxError } from "#core/errors.ts";
import { openGitTree } from "#host/fetch/git.ts";
import { untilFinished } from "../archive/source.ts";
import { madeOf } from "../import.ts";
import { tarLayer } from "../layers/tar-layer.ts";
import { DEFAULT_LIMITS } from "../limits.ts";
import { DiskRoom } from "../room.ts";
import type { GitSource, SourceContext, SourcedArtifact } from "./source.ts";

/** Imports the files of one commit, all of root's and with the commit's time, as `git archive` gives them. */
export async function importGit(source: GitSource, context: SourceContext): Promise<SourcedArtifact> {
  const { store, kind, signal, progress, gateway } = context;
  if (gateway !== undefined && source.url.startsWith("git:")) {
    throw new SandboxError("PermissionDenied", "git:// is for admins, since no gateway can look into it", {
      hint: "use the https:// address of the repository",
    });
  }
  await using scratch = await store.scratch();
  const dir = join(scratch.dir, "git");
  await mkdir(dir, { mode: 0o700 });
  await using tree = await openGitTree({
    ...{ url: source.url, revision: source.revision, credentials: source.credentials, dir, signal, gateway },
    maxFileBytes: DEFAULT_LIMITS.dataBytes,
    onLine: progress,
    guard: () => new DiskRoom(dir).take(1),
  });
  progress(`reading commit ${tree.commit}`);
  const layer = await tarLayer(
    { store, limits: DEFAULT_LIMITS, whiteouts: "none", devices: kind === "base" ? "skip" : "refuse" },
    untilFinished(tree.tar, tree.finished),
  );
  return { ...madeOf(layer), provenance: `git ${source.url} ${tree.commit}` };
}
