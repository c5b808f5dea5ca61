import { BlockList, isIP } from "node:net";
import { networkInterfaces } from "node:os";
import { SandboxError } from "#core/errors.ts";

/** Addresses that mean something inside a network only: this host, its neighbours, clouds' metadata, and forms that wrap such an address. */
const INTERNAL: readonly string[] = [
  ...["0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24"],
  ...["192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4"],
  ...[
    "::/128",
    "::1/128",
    "fc00::/7",
    "fe80::/10",
    "fec0::/10",
    "ff00::/8",
    "64:ff9b::/96",
    "64:ff9b:1::/48",
    "2001::/32",
    "2002::/16",
  ],
];

/** Which internal addresses an operator has opened, as networks. */
export type OpenNetworks = BlockList;

/** Networks as `10.1.0.0/16` or single addresses, separated by commas. Throws `InvalidArgument` for what is none. */
export function parseNetworks(text: string): OpenNetworks {
  const list = new BlockList();
  for (const word of text.split(",").filter((each) => each !== "")) add(list, word.trim());
  return list;
}

/** False for an address of this machine or of a network behind it that was not opened. */
export function isReachable(address: string, open: OpenNetworks): boolean {
  const family = familyOf(address);
  if (family === undefined) return false;
  if (open.check(address, family)) return true;
  const internal = new BlockList();
  for (const network of INTERNAL) add(internal, network);
  const own = Object.values(networkInterfaces()).flatMap((each) => each ?? []);
  return !internal.check(address, family) && !own.some((each) => each.address === address);
}

function add(list: BlockList, network: string): void {
  const [address = "", bits] = network.split("/");
  const family = familyOf(address);
  const most = family === "ipv4" ? 32 : 128;
  const prefix = bits === undefined ? most : Number(bits);
  if (family === undefined || !/^\d{1,3}$/.test(bits ?? "0") || prefix > most) {
    throw new SandboxError("InvalidArgument", `${JSON.stringify(network.slice(0, 80))} is no network`, {
      hint: "for example 10.1.0.0/16, or a single address",
    });
  }
  list.addSubnet(address, prefix, family);
}

function familyOf(address: string): "ipv4" | "ipv6" | undefined {
  const family = isIP(address);
  if (family === 0) return undefined;
  return family === 4 ? "ipv4" : "ipv6";
}
