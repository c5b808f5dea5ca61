import { readFileSync } from "node:fs";
import type { Endpoint } from "#cli/main.ts";
import { hasCode, SandboxError } from "#core/errors.ts";
import type { Places } from "./config.ts";
import { readNodeRecord } from "./node-record.ts";
import { tokenFile } from "./places.ts";

/**
 * Where the commands of this machine find their server: `DSEC_URL` and `DSEC_TOKEN` when set, else the node that runs here,
 * else one that `start` brings up.
 */
export async function findEndpoint(
  env: Readonly<Record<string, string | undefined>>,
  places: Places,
  start: (() => Promise<{ readonly url: string }>) | undefined,
): Promise<Endpoint> {
  const { DSEC_URL: url, DSEC_TOKEN: token } = env;
  if (url !== undefined && url !== "") {
    if (URL.parse(url) === null)
      throw new SandboxError("InvalidArgument", `DSEC_URL: ${JSON.stringify(url)} is not a URL`);
    return { url, token: token ?? readToken(places, false) };
  }
  const node = readNodeRecord(places) ?? (await start?.());
  if (node === undefined) {
    throw new SandboxError("Unavailable", "no node runs on this machine", {
      hint: "start one with dsec up, or set DSEC_URL and DSEC_TOKEN to use another machine's",
    });
  }
  return { url: node.url, token: token ?? readToken(places, true) };
}

function readToken(places: Places, needed: boolean): string | undefined {
  const file = tokenFile(places);
  try {
    return readFileSync(file, "utf8").trim();
  } catch (error) {
    if (!needed && hasCode(error, "ENOENT", "EACCES")) return undefined;
    if (hasCode(error, "EACCES")) {
      throw new SandboxError("PermissionDenied", `${file} is for its owner only`, {
        cause: error,
        hint: "run as root, or set DSEC_TOKEN",
      });
    }
    if (hasCode(error, "ENOENT")) {
      throw new SandboxError("FailedPrecondition", `${file} is missing`, { cause: error, hint: "restart the node" });
    }
    throw error;
  }
}
