import { join } from "node:path";
import { CHECKS } from "./checks.ts";
import { formatProblem, readTree } from "./tree.ts";

// `node tools/main.ts [PATH…]`: prints what the checks find under the given paths, everywhere when none is given.
const wanted = process.argv.slice(2);
const tree = readTree(join(import.meta.dirname, ".."));
const problems = Object.values(CHECKS)
  .flatMap((check) => check(tree))
  .filter(({ path }) => wanted.length === 0 || wanted.some((prefix) => path.startsWith(prefix)));
for (const problem of problems) console.log(formatProblem(problem));
process.exitCode = problems.length === 0 ? 0 : 1;
