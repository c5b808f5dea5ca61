import { readFileSync } from "node:fs";
import { hasCode } from "#core/errors.ts";

/** A file's text; empty when there is no such file. */
export function readText(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    if (hasCode(error, "ENOENT")) return "";
    throw error;
  }
}
