import { SandboxError } from "#core/errors.ts";

const HOSTNAME = /^[a-zA-Z0-9]([a-zA-Z0-9.-]{0,62}[a-zA-Z0-9])?$/;

/** Throws `InvalidArgument` for a name that the kernel or the files in /etc would not take. */
export function checkHostname(hostname: string): void {
  if (HOSTNAME.test(hostname)) return;
  throw new SandboxError("InvalidArgument", `hostname ${JSON.stringify(hostname)} is not one`, {
    hint: "use up to 64 letters, digits, dots and dashes",
  });
}

/** `/etc/hosts` of a sandbox of this name: it has its loopback only. */
export function hostsFile(hostname: string): string {
  return `127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.1.1\t${hostname}\n`;
}
