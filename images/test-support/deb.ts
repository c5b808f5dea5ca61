import { existsSync, mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { archive, run } from "./fixtures.ts";

/** A member of an ar archive. */
export interface ArMember {
  readonly name: string;
  readonly body: Buffer | string;
  /** What its header says, where that is not the truth. */
  readonly size?: string;
}

/** An ar archive as bytes. */
export function ar(...members: readonly ArMember[]): Buffer {
  const parts = members.flatMap(({ name, body, size = String(body.length) }) => [
    Buffer.from(`${name.padEnd(16)}${"0".padEnd(12)}0     0     100644  ${size.padEnd(10)}\`\n`),
    Buffer.from(body),
    Buffer.from(body.length % 2 === 1 ? "\n" : ""),
  ]);
  return Buffer.concat([Buffer.from("!<arch>\n"), ...parts]);
}

/** What a package says of itself, and its files. */
export interface PackageText {
  readonly name?: string;
  readonly architecture?: string;
  readonly fields?: string;
  readonly data?: Buffer;
}

/** A whole package. */
export function deb({
  name = "tool",
  architecture = "all",
  fields = "",
  data = archive({ path: "./usr/tool" }),
}: PackageText): Buffer {
  const control = `Package: ${name}\nVersion: 1:1.0-1\nArchitecture: ${architecture}\n${fields}Description: a test\n more\n`;
  return ar(
    { name: "debian-binary", body: "2.0\n" },
    {
      name: "control.tar",
      body: archive({ path: "./control", body: control }, { path: "./postinst", body: "exit 1" }),
    },
    { name: "data.tar", body: data },
  );
}

/** Unpacks packages with dpkg's own program below `root`, then moves what a system with a merged /usr has there. */
export function unpackWithDpkg(root: string, files: readonly string[]): void {
  for (const file of files) run("dpkg-deb", "-x", file, root);
  for (const name of ["bin", "sbin", "lib", "lib64"]) {
    const from = join(root, name);
    if (!existsSync(from)) continue;
    const to = join(root, "usr", name);
    mkdirSync(to, { recursive: true });
    run("cp", "--archive", "--link", `${from}/.`, to);
    rmSync(from, { recursive: true });
  }
}
