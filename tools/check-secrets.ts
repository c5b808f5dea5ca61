import { lineAt, type Problem, type Tree } from "./tree.ts";

// Written in pieces so that this file does not find itself.
const RULES = [
  { pattern: new RegExp("-----BEGIN [A-Z ]*PRIVATE " + "KEY-----", "g"), message: "a private key" },
  { pattern: /\b(?:AKIA[0-9A-Z]{16}|gh[pousr]_\w{36}|npm_\w{36}|dsec_[\w-]{40,})\b/g, message: "a credential" },
  {
    pattern: /(?<![\w.$~}/-])\/(?:work|root\/\w|home\/(?!user|app|agent|node)\w+|Users)\//g,
    message: "a path of one machine",
  },
  { pattern: /\bhttps?:\/\/(?:registry|proxy|mirror|cache)[\w.-]*[:/]/g, message: "the address of a registry" },
  {
    pattern: /\b(?:10\.\d+|192\.168|172\.(?:1[6-9]|2\d|3[01]))\.\d+\.\d+\b(?!\/\d)/g,
    message: "an address of a private network",
  },
  { pattern: /"resolved":\s*"https?:/g, message: "a lock that names a registry: omit-lockfile-registry-resolved" },
] as const;

/** Nothing in the tree is secret or belongs to one machine. */
export function checkSecrets(tree: Tree): readonly Problem[] {
  return tree.files.flatMap((file) =>
    RULES.flatMap(({ pattern, message }) =>
      [...file.text.matchAll(pattern)].map((match) => ({
        path: file.path,
        line: lineAt(file.text, match.index),
        rule: "secrets",
        message: `${match[0].slice(0, 24)}: ${message}`,
      })),
    ),
  );
}
