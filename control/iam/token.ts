import { createHash, randomBytes, timingSafeEqual } from "node:crypto";

/** Makes tokens recognisable to people and to scanners that look for leaked secrets. */
const PREFIX = "dsec_";
/** 256 random bits: no guess succeeds, so a fast hash is enough to keep them. */
const TOKEN_BYTES = 32;
const TOKEN = /^dsec_[A-Za-z0-9_-]{43}$/;

/** A new secret. It is shown once and never stored. */
export function newToken(): string {
  return PREFIX + randomBytes(TOKEN_BYTES).toString("base64url");
}

/** What is stored of a token; undefined for text that cannot be one. */
export function tokenHash(token: string): string | undefined {
  return TOKEN.test(token) ? createHash("sha256").update(token).digest("hex") : undefined;
}

/** Compares two hashes in a time that tells nothing about where they differ. */
export function sameHash(a: string, b: string): boolean {
  const [left, right] = [Buffer.from(a), Buffer.from(b)];
  return left.length === right.length && timingSafeEqual(left, right);
}

/** The token of an `Authorization: Bearer …` header; undefined when it has another form. */
export function bearer(header: string | undefined): string | undefined {
  return header === undefined ? undefined : /^Bearer +(\S+) *$/i.exec(header)?.[1];
}
