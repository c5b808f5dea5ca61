/** The version of everything in this tree; `package.json` says the same, held by a test. */
export const VERSION = "0.1.0";
