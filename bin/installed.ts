import { readFileSync } from "node:fs";

/**
 * Says whether `node_modules` is what `package-lock.json` asks for: prints `full`, or `production` when packages for
 * development are missing, and exits with 1 otherwise. npm writes the hidden lock as the last act of an installation.
 */
interface LockedPackage {
  readonly version?: string;
  readonly integrity?: string;
  readonly link?: boolean;
  readonly dev?: boolean;
  readonly optional?: boolean;
  readonly devOptional?: boolean;
}

/** The level of what is installed in `root`, undefined when something that is needed is missing or another version. */
function installedLevel(
  wanted: Readonly<Record<string, LockedPackage>>,
  present: Readonly<Record<string, LockedPackage>>,
): "full" | "production" | undefined {
  let level: "full" | "production" = "full";
  for (const [path, entry] of Object.entries(wanted)) {
    if (!path.startsWith("node_modules/")) continue;
    const there = present[path];
    if (there === undefined) {
      // Optional ones are for other machines, or absent by the platform's choice.
      if (entry.optional === true || entry.devOptional === true) continue;
      if (entry.dev !== true) return undefined;
      level = "production";
    } else if (there.version !== entry.version || there.integrity !== entry.integrity) {
      return undefined;
    }
  }
  return level;
}

function packagesOf(file: string): Readonly<Record<string, LockedPackage>> {
  return (JSON.parse(readFileSync(file, "utf8")) as { packages: Record<string, LockedPackage> }).packages;
}

if (import.meta.main) {
  const root = process.argv[2] ?? ".";
  const level = installedLevel(
    packagesOf(`${root}/package-lock.json`),
    packagesOf(`${root}/node_modules/.package-lock.json`),
  );
  if (level === undefined) process.exitCode = 1;
  else console.log(level);
}
