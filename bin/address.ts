import { SandboxError } from "#core/errors.ts";

/** Where something listens. */
export interface Address {
  readonly host: string;
  readonly port: number;
}

/** `host:port`, an IPv6 address in brackets. Throws `InvalidArgument` that names the setting. */
export function parseAddress(text: string, setting: string): Address {
  const match = /^(?:\[([0-9a-fA-F:.]+)\]|([^:[\]]+)):(\d{1,5})$/.exec(text);
  const host = match?.[1] ?? match?.[2];
  const port = Number(match?.[3]);
  if (host === undefined || port > 65_535) {
    throw new SandboxError("InvalidArgument", `${setting}: ${JSON.stringify(text)} is not ADDRESS:PORT`);
  }
  return { host, port };
}
