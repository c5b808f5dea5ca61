import { type ChildProcessByStdio, spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { createServer, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { fileURLToPath } from "node:url";
import { run, temporaryDirectory } from "./fixtures.ts";

const PROGRAM = fileURLToPath(new URL("../../.build/docker-registry", import.meta.url));
/** bcrypt of `secret`. */
const SECRET_HASH = "$2b$05$BnRRab7rPYZzUzpJIOeNKOer3Ac7k2sHGwl4zkqp0D0vyaTnO2Iva";

/** How a registry is started. */
export interface RegistryOptions {
  /** Only `user` with the password `secret` gets in. */
  readonly locked?: boolean;
  /** HTTPS, with a certificate for 127.0.0.1 that nobody else vouches for. */
  readonly tls?: boolean;
}

/** Debian's registry on loopback. */
export interface TestRegistry extends AsyncDisposable {
  /** `127.0.0.1:PORT`. */
  readonly host: string;
  /** The certificate to trust, with `tls`. */
  readonly certificate: string;
  /** Puts the image of an OCI archive there. */
  push(archive: Buffer, name: string): void;
}

/** Starts a registry with a directory of its own; `./dsec test` has put its program there. */
export async function startRegistry(options: RegistryOptions = {}): Promise<TestRegistry> {
  const directory = temporaryDirectory();
  const { path } = directory;
  const certificate = join(path, "registry.crt");
  if (options.tls === true) makeCertificate(path);
  writeFileSync(join(path, "users"), `user:${SECRET_HASH}\n`);
  writeFileSync(join(path, "config.yml"), configText(path, options));
  const child = spawn(PROGRAM, ["serve", join(path, "config.yml")], { stdio: ["ignore", "ignore", "pipe"] });
  const host = await address(child);
  return {
    host,
    certificate,
    push(archive, name) {
      writeFileSync(join(path, "pushed.tar"), archive);
      const words = ["--dest-tls-verify=false", ...(options.locked === true ? ["--dest-creds=user:secret"] : [])];
      run("skopeo", "copy", "--all", ...words, `oci-archive:${join(path, "pushed.tar")}`, `docker://${host}/${name}`);
    },
    async [Symbol.asyncDispose]() {
      const ended = once(child, "exit");
      child.kill("SIGKILL");
      await ended;
      directory[Symbol.dispose]();
    },
  };
}

function configText(path: string, { locked, tls }: RegistryOptions): string {
  const security = tls === true ? `, tls: {certificate: ${path}/registry.crt, key: ${path}/registry.key}` : "";
  const auth = locked === true ? `auth: {htpasswd: {realm: test, path: ${path}/users}}\n` : "";
  return `version: 0.1\nstorage: {filesystem: {rootdirectory: ${path}/data}}\nhttp: {addr: "127.0.0.1:0"${security}}\n${auth}`;
}

function makeCertificate(path: string): void {
  const words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"];
  run(
    "openssl",
    ...words,
    "-addext",
    "subjectAltName=IP:127.0.0.1",
    "-keyout",
    `${path}/registry.key`,
    "-out",
    `${path}/registry.crt`,
  );
}

/** It says where it listens in its log. */
async function address(child: ChildProcessByStdio<null, null, Readable>): Promise<string> {
  let said = "";
  for await (const chunk of child.stderr.iterator({ destroyOnReturn: false })) {
    said += String(chunk);
    const found = /listening on (127\.0\.0\.1:\d+)/.exec(said)?.[1];
    if (found !== undefined) {
      child.stderr.resume();
      return found;
    }
  }
  throw new Error(`the registry did not start: ${said}`);
}

/** Answers by path, whatever the method; a path that has none is 404. */
export type Answers = ReadonlyMap<string, Answer>;

/** What a server says, or keeps saying, or begins to say. */
export interface Answer {
  readonly type: string;
  readonly body: Buffer | "endless" | "stalls";
}

/** A server that says what a real registry never would. */
export async function startHostileRegistry(answers: Answers): Promise<{ readonly host: string } & AsyncDisposable> {
  const server = createServer((request, response) => {
    const path = request.url ?? "";
    const answer = path === "/v2/" ? { type: "application/json", body: Buffer.from("{}") } : answers.get(path);
    if (answer === undefined) {
      response.writeHead(404).end();
      return;
    }
    response.writeHead(200, { "content-type": answer.type });
    if (answer.body === "endless") void pour(response);
    else if (answer.body !== "stalls") response.end(answer.body);
    else response.write("x");
  });
  await listen(server);
  const { port } = server.address() as AddressInfo;
  return {
    host: `127.0.0.1:${port}`,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

async function pour(response: ServerResponse): Promise<void> {
  async function* zeros() {
    for (const piece = Buffer.alloc(2 ** 20); ; ) yield piece;
  }
  // It ends when the reader leaves.
  await pipeline(zeros, response).catch(() => undefined);
}

function listen(server: Server): Promise<void> {
  return new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
}
