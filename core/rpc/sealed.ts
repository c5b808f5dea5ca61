import { hkdfSync } from "node:crypto";
import type { ConnectionOptions, TlsOptions } from "node:tls";

/** Agrees on new keys for each connection, so that who learns the token later reads nothing of earlier ones. Node has pre-shared keys up to TLS 1.2. */
const WITHOUT_CERTIFICATES = {
  ciphers: "ECDHE-PSK-CHACHA20-POLY1305",
  minVersion: "TLSv1.2",
  maxVersion: "TLSv1.2",
} as const;
const IDENTITY = "dsec";
const KEY_BYTES = 32;

/** TLS for who listens: a handshake needs the token on both sides, and nobody else hears or changes a byte. */
export function sealedServer(token: string): TlsOptions {
  const key = keyOf(token);
  return { ...WITHOUT_CERTIFICATES, pskCallback: () => key };
}

/** The same for who connects. */
export function sealedClient(token: string): ConnectionOptions {
  const psk = keyOf(token);
  return {
    ...WITHOUT_CERTIFICATES,
    pskCallback: () => ({ psk, identity: IDENTITY }),
    // There is no certificate that a name could stand in: the token is the identity.
    checkServerIdentity: () => undefined,
  };
}

/** The token itself is shown inside the connection, and is no key of it. */
function keyOf(token: string): Buffer {
  return Buffer.from(hkdfSync("sha256", token, "", "dsec node api", KEY_BYTES));
}
