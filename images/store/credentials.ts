import { readFile, stat } from "node:fs/promises";
import { SandboxError } from "#core/errors.ts";

/** What signs requests to S3. */
export interface S3Credentials {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly sessionToken?: string | undefined;
}

/** Credentials at the moment of a request: a file may be written anew while the node runs. */
export type S3CredentialsSource = () => Promise<S3Credentials>;

const NAMES = {
  accessKeyId: "AWS_ACCESS_KEY_ID",
  secretAccessKey: "AWS_SECRET_ACCESS_KEY",
  sessionToken: "AWS_SESSION_TOKEN",
} as const;
const MAX_FILE_BYTES = 2 ** 16;

/**
 * Takes credentials out of an environment, so that no process started later inherits them. `undefined` when there are none;
 * `InvalidArgument` when there are half of them.
 */
export function takeCredentials(env: Record<string, string | undefined>): S3Credentials | undefined {
  const found = {
    accessKeyId: env[NAMES.accessKeyId],
    secretAccessKey: env[NAMES.secretAccessKey],
    sessionToken: env[NAMES.sessionToken],
  };
  for (const name of Object.values(NAMES)) delete env[name];
  return found.accessKeyId === undefined && found.secretAccessKey === undefined
    ? undefined
    : credentialsOf(found, "the environment");
}

/**
 * Reads a file of the form that AWS tools share: `aws_access_key_id = …` and so on in a section `[default]`. It is read for every
 * request. Rejects with `InvalidArgument` when it cannot be read, others than its owner can read it, or it lacks a line.
 */
export function credentialsFile(path: string): S3CredentialsSource {
  return async () => {
    const text = await readSecret(path);
    const values = new Map<string, string>();
    let isDefault = true;
    for (const line of text.split("\n")) {
      const section = /^\s*\[(.*)\]\s*$/.exec(line)?.[1];
      if (section !== undefined) isDefault = section.trim() === "default";
      const [, name, value] = /^\s*(\w+)\s*=\s*(\S+)\s*$/.exec(line) ?? [];
      if (isDefault && name !== undefined && value !== undefined) values.set(name.toUpperCase(), value);
    }
    const { accessKeyId, secretAccessKey, sessionToken } = NAMES;
    return credentialsOf(
      {
        accessKeyId: values.get(accessKeyId),
        secretAccessKey: values.get(secretAccessKey),
        sessionToken: values.get(sessionToken),
      },
      path,
    );
  };
}

async function readSecret(path: string): Promise<string> {
  const problem = (what: string, cause?: unknown) =>
    new SandboxError("InvalidArgument", `the credentials file ${path} ${what}`, {
      cause,
      hint: "name a file of mode 600 with aws_access_key_id and aws_secret_access_key in a section [default]",
    });
  try {
    const { mode, size } = await stat(path);
    if ((mode & 0o077) !== 0) throw problem("can be read by others than its owner");
    if (size > MAX_FILE_BYTES) throw problem("is too large");
    return await readFile(path, "utf8");
  } catch (error) {
    throw error instanceof SandboxError ? error : problem("cannot be read", error);
  }
}

function credentialsOf(
  found: { readonly [K in keyof S3Credentials]: string | undefined },
  where: string,
): S3Credentials {
  const { accessKeyId, secretAccessKey, sessionToken } = found;
  // What goes into headers has no spaces and no control characters, whatever the file holds.
  const isGood = [accessKeyId, secretAccessKey, sessionToken ?? "-"].every((part) => /^[!-~]+$/.test(part ?? ""));
  if (isGood && accessKeyId !== undefined && secretAccessKey !== undefined) {
    return { accessKeyId, secretAccessKey, sessionToken };
  }
  throw new SandboxError("InvalidArgument", `${where} has no whole credentials for the store`, {
    hint: `there must be ${NAMES.accessKeyId} and ${NAMES.secretAccessKey}, in a file in lower case`,
  });
}
