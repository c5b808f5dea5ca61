import { constants, copyFileSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { copyFile, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import type { Place } from "#core/backend.ts";
import { hasCode, SandboxError } from "#core/errors.ts";
import type { CommandId } from "#core/ids.ts";
import type { CommandRow, CommandRows } from "#edge/commands/rows.ts";
import type { HeldReceipts } from "#edge/copies/receipts.ts";

/** What runs in a sandbox at one instant, as its edge knows it: for copies in which it goes on. */
export interface Carried {
  readonly rows: readonly CommandRow[];
  /** Holds the files of their outputs. */
  readonly dir: string;
}

/** What a sandbox begins with that another one was. */
export interface Origin {
  /** Settles when that is copied, with what runs in it. */
  readonly copied: Promise<Carried | undefined>;
  readonly content: Place["copied"];
  /** It does not run until it is asked for something. */
  readonly paused: boolean;
}

/** What is carried over, until all copies have it. */
export interface Carrying extends AsyncDisposable {
  readonly carried: Carried;
  /** The copies are made: the agent may forget again. Throws `Unavailable` when it may have forgotten something before. */
  copied(): void;
}

/** Begins with a dot: no sandbox is called so, and what a killed edge leaves is swept with the outputs of unknown ones. */
const PREFIX = ".carried-";

/** What is carried over of a sandbox. */
interface CarryParts {
  readonly rows: Pick<CommandRows, "open">;
  readonly outputDir: string;
  /** The receipts of its agent, held before; let go when there is nothing to carry. */
  readonly held: HeldReceipts;
  /** Of a command that its agent knows; 0 until it has said it. */
  readonly pidOf: (id: CommandId) => number | undefined;
}

/** Takes what there is of the commands that run at this moment. What it throws for, a full disk say, leaves nothing held. */
export function carry(parts: CarryParts): Carrying {
  try {
    return carryOver(parts);
  } catch (error) {
    // An agent that is never told what is safe soon has no room for more.
    parts.held[Symbol.dispose]();
    throw error;
  }
}

function carryOver({ rows: all, outputDir, held, pidOf }: CarryParts): Carrying {
  const rows = all.open().flatMap((row) => {
    const pid = pidOf(row.id);
    return pid === undefined ? [] : [{ ...row, pid: pid === 0 ? undefined : pid }];
  });
  mkdirSync(dirname(outputDir), { recursive: true, mode: 0o700 });
  const dir = mkdtempSync(join(dirname(outputDir), PREFIX));
  const clear = async () => {
    held[Symbol.dispose]();
    await rm(dir, { recursive: true, force: true });
  };
  // At once: an output that grows between two of them is no matter, one that goes round meanwhile would be.
  try {
    for (const name of rows.flatMap(namesOf)) cloneFile(join(outputDir, name), join(dir, name));
  } catch (error) {
    rmSync(dir, { recursive: true, force: true });
    throw error;
  }
  return {
    carried: { rows, dir },
    copied() {
      if (!held.whole) throw new SandboxError("Unavailable", "the agent was reached anew while its sandbox was copied");
      held[Symbol.dispose]();
    },
    [Symbol.asyncDispose]: clear,
  };
}

/** Gives a copy what was carried over for it, before anything else is known of it. */
export async function receive({ rows, dir }: Carried, to: CommandRows, outputDir: string): Promise<void> {
  mkdirSync(outputDir, { recursive: true, mode: 0o700 });
  for (const name of readdirSync(dir)) {
    await copyFile(join(dir, name), join(outputDir, name), constants.COPYFILE_FICLONE);
  }
  for (const row of rows) to.copy(row);
}

function namesOf({ id }: CommandRow): readonly string[] {
  return [`${id}.stdout`, `${id}.stderr`];
}

/** Little output has no file. */
function cloneFile(from: string, to: string): void {
  try {
    copyFileSync(from, to, constants.COPYFILE_FICLONE);
  } catch (error) {
    if (!hasCode(error, "ENOENT")) throw error;
  }
}
