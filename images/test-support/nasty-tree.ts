import {
  chmodSync,
  chownSync,
  closeSync,
  linkSync,
  lutimesSync,
  mkdirSync,
  openSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import { setXattr } from "#host/sys/test-support/xattr.ts";
import { run } from "./fixtures.ts";

/** A file capability of version 2: cap_net_raw, effective. */
const CAP_NET_RAW = Buffer.from("0100000200200000000000000000000000000000", "hex");

/** Fills a directory with everything that a file tree can hold and an importer can get wrong. */
export function makeNastyTree(root: string): void {
  const at = (path: string): string => join(root, path);
  files(at);
  links(at);
  attributes(at);
  names(root);
  let deep = root;
  for (let depth = 0; depth < 60; depth++) deep = join(deep, `level-${depth}-of-a-rather-deep-path`);
  mkdirSync(deep, { recursive: true });
  writeFileSync(join(deep, "bottom"), "far down");
  run("mkfifo", at("fifo"));
  run("mknod", at("whiteout"), "c", "0", "0");
  for (const path of ["plain", "dangling", "empty"]) lutimesSync(at(path), 1, -1.5);
  lutimesSync(root, 5, 1_234_567_890.5);
}

function files(at: (path: string) => string): void {
  writeFileSync(at("plain"), "plain\n");
  writeFileSync(at("empty"), "");
  for (const size of [1, 4095, 4096, 4097, 2 ** 20 - 1, 2 ** 20, 2 ** 20 + 1, 5 * 2 ** 20 + 77]) {
    writeFileSync(at(`size-${size}`), Buffer.alloc(size, `${size},`));
  }
  writeFileSync(at("same-as-plain"), "plain\n");
  writeFileSync(at("sparse"), "");
  truncateSync(at("sparse"), 64 * 2 ** 20 + 5);
  const fd = openSync(at("sparse"), "r+");
  writeSync(fd, "island", 33 * 2 ** 20);
  closeSync(fd);
}

function links(at: (path: string) => string): void {
  mkdirSync(at("a/b"), { recursive: true });
  writeFileSync(at("a/first"), "three names");
  linkSync(at("a/first"), at("a/b/second"));
  linkSync(at("a/first"), at("third"));
  symlinkSync("nowhere/at/all", at("dangling"));
  symlinkSync("/etc/passwd", at("absolute"));
  symlinkSync("../".repeat(100), at("upwards"));
  symlinkSync("x".repeat(4095), at("longest"));
  symlinkSync("y".repeat(2100), at("long"));
  linkSync(at("dangling"), at("dangling-again"));
}

function attributes(at: (path: string) => string): void {
  writeFileSync(at("suid"), "s");
  chownSync(at("suid"), 0, 65_535);
  chmodSync(at("suid"), 0o6755);
  mkdirSync(at("sticky"));
  chmodSync(at("sticky"), 0o1777);
  mkdirSync(at("setgid"));
  chownSync(at("setgid"), 1000, 1000);
  chmodSync(at("setgid"), 0o2770);
  writeFileSync(at("secret"), "");
  chmodSync(at("secret"), 0);
  writeFileSync(at("capable"), "#!");
  setXattr(at("capable"), "security.capability", CAP_NET_RAW);
  writeFileSync(at("labelled"), "x");
  for (let index = 0; index < 20; index++) setXattr(at("labelled"), `user.key${index}`, Buffer.alloc(index * 9, index));
  mkdirSync(at("opaque"));
  setXattr(at("opaque"), "trusted.overlay.opaque", Buffer.from("y"));
  // Attributes that leave no room for the listing beside the inode.
  mkdirSync(at("heavy"));
  setXattr(at("heavy"), "user.heavy", Buffer.alloc(3000, 7));
  for (let index = 0; index < 40; index++) writeFileSync(at(`heavy/${"n".repeat(60)}${index}`), "");
}

function names(root: string): void {
  const directory = join(root, "names");
  mkdirSync(directory);
  const odd = [
    "\xff\xfe",
    " ",
    "!",
    "-rf",
    "..a",
    "...",
    "\n",
    "a\\b",
    "\x01",
    "é",
    "\x7f",
    "n".repeat(255),
    ".hidden",
    '"',
  ];
  for (const name of odd) {
    writeFileSync(Buffer.concat([Buffer.from(`${directory}/`), Buffer.from(name, "latin1")]), name);
  }
}
