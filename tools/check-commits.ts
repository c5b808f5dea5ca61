import { execFileSync } from "node:child_process";

/** What is wrong with a commit message; an empty list when nothing is. */
export function judgeMessage(message: string): readonly string[] {
  const [subject = "", blank = "", ...body] = message.trimEnd().split("\n");
  const faults: string[] = [];
  if (subject.length > 72) faults.push(`the subject has ${subject.length} columns, over 72`);
  if (!/^[\w./-]+(, [\w./-]+)*: [a-z]/.test(subject)) faults.push("the subject is not `area: imperative summary`");
  if (subject.endsWith(".")) faults.push("the subject ends with a full stop");
  if (blank !== "") faults.push("the second line is not blank");
  if (body.join("").trim() === "") faults.push("the body does not say why");
  return faults;
}

/** Judges the messages of `git log RANGE` in the repository at `cwd`; prints what is wrong and returns how many commits are. */
export function judgeRange(range: string, print: (line: string) => void, cwd = process.cwd()): number {
  const log = execFileSync("git", ["log", "--no-merges", "--format=%h%x00%B%x01", range], { encoding: "utf8", cwd });
  const commits = log.split("\x01").filter((entry) => entry.trim() !== "");
  return commits.filter((entry) => {
    const [hash = "", message = ""] = entry.trim().split("\0");
    const faults = judgeMessage(message);
    for (const fault of faults) print(`${hash}: ${fault}`);
    return faults.length > 0;
  }).length;
}

if (import.meta.main) process.exitCode = judgeRange(process.argv[2] ?? "HEAD", console.error) === 0 ? 0 : 1;
