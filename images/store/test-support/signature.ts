import { createHmac, hash } from "node:crypto";
import type { IncomingMessage } from "node:http";

/** True when a request is signed with `secret` as Signature Version 4 says, over the headers, path and query that came. */
export function isSigned({ method, url = "/", headers }: IncomingMessage, secret: string): boolean {
  const parts =
    /^AWS4-HMAC-SHA256 Credential=[^/]+\/(\d{8})\/([^/]+)\/(s3)\/aws4_request, SignedHeaders=([^,]+), Signature=(\w+)$/;
  const [, day = "", region = "", service = "", names = "", signature] = parts.exec(headers.authorization ?? "") ?? [];
  const { pathname, searchParams } = new URL(url, "http://host");
  const query = [...searchParams].map((pair) => pair.map(encodeURIComponent).join("=")).sort();
  const signed = names.split(";").map((name) => `${name}:${headers[name]}\n`);
  const canonical = [method, pathname, query.join("&"), signed.join(""), names, headers["x-amz-content-sha256"]];
  const scope = `${day}/${region}/${service}/aws4_request`;
  const text = ["AWS4-HMAC-SHA256", headers["x-amz-date"], scope, hash("sha256", canonical.join("\n"))].join("\n");
  const key = [day, region, service, "aws4_request"].reduce<Buffer | string>(
    (above, part) => createHmac("sha256", above).update(part).digest(),
    `AWS4${secret}`,
  );
  return createHmac("sha256", key).update(text).digest("hex") === signature;
}
