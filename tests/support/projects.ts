import { join } from "node:path";
import { Iam } from "#control/iam/iam.ts";
import { SqliteState } from "#control/state/sqlite.ts";
import { systemClock } from "#core/clock.ts";
import type { TestNode } from "./node.ts";

/** The token of a member of a new project. The API makes no projects: an operator's tools do, with the same store. */
export async function tokenOfNew(node: TestNode, project: string): Promise<string> {
  await using state = new SqliteState(join(node.dataDir, "control.db"));
  const iam = new Iam(state, systemClock);
  await iam.createProject(project);
  return await iam.createToken({ name: "member", project, role: "member" });
}
