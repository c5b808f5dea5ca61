import type { Dockerfile, Instruction, Stage } from "./dockerfile.ts";
import { expandText } from "./expand.ts";
import { refused } from "./refused.ts";
import { type Settings, said } from "./state.ts";

/** Where a stage begins, or files of a COPY come from: another stage, or an artifact of the catalogue. */
export type Origin =
  | { readonly type: "stage"; readonly index: number }
  | { readonly type: "artifact"; readonly reference: string };

/** A stage that is to be built. */
export interface StagePlan {
  /** Its place in the file. */
  readonly index: number;
  readonly stage: Stage;
  readonly from: Origin;
  /** For each `COPY --from`. */
  readonly copies: ReadonlyMap<Instruction, Origin>;
}

/** The stages that the last one needs, in the order of the file. Throws `InvalidArgument` with its line for an origin that cannot be. */
export function planStages({ stages }: Dockerfile, settings: Settings): readonly StagePlan[] {
  const plans = stages.map((stage, index): StagePlan => {
    const { line } = stage.from;
    const base = said(line, () => expandText(stage.base, settings.globals, settings.escapeMark));
    if (base === "scratch") throw refused(line, "FROM scratch is not supported: name a base of dsec image ls");
    if (base === "") throw refused(line, `FROM ${stage.base} names nothing: give the argument a value`);
    const sources = stage.instructions.filter(({ flags }) => flags.has("from"));
    const copies = new Map(
      sources.map((each) => [each, originOf(each.flags.get("from") ?? "", each.line, stages, index)]),
    );
    return { index, stage, from: originOf(base, line, stages, index), copies };
  });
  const needed = new Set([plans.length - 1]);
  // A Set goes on to what is added while it is walked.
  for (const index of needed) {
    const plan = plans[index];
    if (plan === undefined) continue;
    for (const origin of [plan.from, ...plan.copies.values()]) if (origin.type === "stage") needed.add(origin.index);
  }
  return plans.filter(({ index }) => needed.has(index));
}

/** Only what stands before can be named: nothing goes round in circles. */
function originOf(text: string, line: number, stages: readonly Stage[], before: number): Origin {
  if (/[$"'\s]/.test(text) || text === "")
    throw refused(line, `${JSON.stringify(text)} names no stage and no artifact`);
  const named = stages.findIndex(({ name }) => name === text.toLowerCase());
  const index = named < 0 && /^\d+$/.test(text) ? Number(text) : named;
  if (index >= before && index < stages.length) throw refused(line, `the stage ${text} does not come before this line`);
  return index >= 0 && index < before ? { type: "stage", index } : { type: "artifact", reference: text };
}
