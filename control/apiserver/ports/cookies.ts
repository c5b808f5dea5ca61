/** Holds the pass for one port. The prefix keeps other hosts of the domain from setting it. */
export const PASS_COOKIE = "__Host-dsec-pass";

/** The pass among the cookies of a request. */
export function passIn(cookies: string | undefined): string | undefined {
  return (cookies ?? "")
    .split(";")
    .map((cookie) => cookie.trim())
    .find((cookie) => cookie.startsWith(`${PASS_COOKIE}=`))
    ?.slice(PASS_COOKIE.length + 1);
}

/** The cookies that are the application's; undefined when there are none. */
export function withoutPass(cookies: string): string | undefined {
  const own = cookies.split(";").filter((cookie) => !cookie.trim().startsWith(`${PASS_COOKIE}=`));
  return own.length === 0 ? undefined : own.join(";").trim();
}

/** A cookie for this host alone, whatever the application says: others of the domain belong to other sandboxes. */
export function hostOnly(setCookie: string): string {
  return setCookie
    .split(";")
    .filter((part, index) => index === 0 || !/^\s*domain\s*(?:=|$)/i.test(part))
    .join(";");
}
