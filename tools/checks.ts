import { checkChangelog } from "./check-changelog.ts";
import { checkDead } from "./check-dead.ts";
import { checkDependencies } from "./check-dependencies.ts";
import { checkEscapes } from "./check-escapes.ts";
import { checkExports } from "./check-exports.ts";
import { checkFigures } from "./check-figures.ts";
import { checkGlossary } from "./check-glossary.ts";
import { checkLayers } from "./check-layers.ts";
import { checkLinks } from "./check-links.ts";
import { checkPeers } from "./check-peers.ts";
import { checkSecrets } from "./check-secrets.ts";
import { checkSizes, checkTypicalSizes } from "./check-sizes.ts";
import type { Check } from "./tree.ts";

/** Every check of the tree, by the rule that it holds. */
export const CHECKS: Readonly<Record<string, Check>> = {
  "imports stay inside what layers.ts allows": checkLayers,
  "files and functions are within their caps": checkSizes,
  "the typical file and function are small": checkTypicalSizes,
  "every export is documented and named": checkExports,
  "nothing is unfinished, hidden from the compiler or skipped without a reason": checkEscapes,
  "every file and exported value is used": checkDead,
  "backends have the same files": checkPeers,
  "packages are pinned, explained and declared": checkDependencies,
  "nothing in the tree is secret or of one machine": checkSecrets,
  "the changelog keeps its form": checkChangelog,
  "links lead somewhere and every page is reachable": checkLinks,
  "pages use the words of the glossary": checkGlossary,
  "the specification and the benches promise the same figures": checkFigures,
};
