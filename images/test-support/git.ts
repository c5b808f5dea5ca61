import { execFileSync, spawn } from "node:child_process";
import { createServer as createHttpServer, type IncomingMessage, type ServerResponse } from "node:http";
import { type AddressInfo, createServer, type Server } from "node:net";
import { join } from "node:path";

const PERSON = { NAME: "Test", EMAIL: "test@example.org", DATE: "2024-01-02T03:04:05Z" };
const IDENTITY = Object.fromEntries(
  ["AUTHOR", "COMMITTER"].flatMap((role) =>
    Object.entries(PERSON).map(([key, value]) => [`GIT_${role}_${key}`, value]),
  ),
);

/** Runs git in a directory, with no configuration but its own. */
export function git(directory: string, ...words: readonly string[]): string {
  const env = { ...process.env, ...IDENTITY, GIT_CONFIG_GLOBAL: "/dev/null", GIT_CONFIG_NOSYSTEM: "1" };
  return execFileSync("git", ["-C", directory, ...words], {
    env,
    encoding: "utf8",
    stdio: ["ignore", "pipe", "pipe"],
  }).trim();
}

/** Where a repository is served. */
export interface GitServer extends AsyncDisposable {
  readonly url: string;
}

/** Serves the repositories below `root` over HTTP; with `authorization`, to whoever sends that header. */
export async function serveOverHttp(root: string, authorization?: string): Promise<GitServer> {
  const server = createHttpServer((request, response) => {
    if (authorization !== undefined && request.headers.authorization !== authorization) {
      response.writeHead(401, { "www-authenticate": 'Basic realm="test"' }).end();
    } else gateway(root, request, response);
  });
  return await listening(server, "http");
}

/** Serves the repositories below `root` in git's own protocol. */
export async function serveOverGit(root: string): Promise<GitServer> {
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    const words = ["daemon", "--inetd", "--export-all", `--base-path=${root}`, root];
    const child = spawn("git", words, { stdio: ["pipe", "pipe", "ignore"] });
    socket.on("error", () => child.kill());
    child.stdin.on("error", () => undefined);
    socket.pipe(child.stdin);
    child.stdout.pipe(socket);
  });
  return await listening(server, "git");
}

/** git's own program behind a web server, called as CGI has it. */
function gateway(root: string, request: IncomingMessage, response: ServerResponse): void {
  const { pathname, search } = new URL(request.url ?? "/", "http://localhost");
  const env = {
    ...{ PATH: process.env.PATH, GIT_PROJECT_ROOT: root, GIT_HTTP_EXPORT_ALL: "1", GIT_PROTOCOL: "version=2" },
    ...{ PATH_INFO: pathname, QUERY_STRING: search.slice(1), REQUEST_METHOD: request.method },
    ...{
      CONTENT_TYPE: request.headers["content-type"] ?? "",
      HTTP_CONTENT_ENCODING: request.headers["content-encoding"] ?? "",
    },
  };
  const child = spawn("git", ["-c", "safe.directory=*", "http-backend"], { env, stdio: ["pipe", "pipe", "ignore"] });
  child.stdin.on("error", () => undefined);
  request.pipe(child.stdin);
  const parts: Buffer[] = [];
  child.stdout.on("data", (part: Buffer) => parts.push(part));
  child.on("close", () => {
    const reply = Buffer.concat(parts);
    const end = reply.indexOf("\r\n\r\n");
    const heads = reply
      .subarray(0, end)
      .toString("latin1")
      .split("\r\n")
      .map((line) => line.split(": ") as [string, string]);
    const status = Number.parseInt(heads.find(([name]) => name === "Status")?.[1] ?? "200", 10);
    response.writeHead(status, Object.fromEntries(heads.filter(([name]) => name !== "Status")));
    response.end(reply.subarray(end + 4));
  });
}

async function listening(server: Server, protocol: string): Promise<GitServer> {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `${protocol}://127.0.0.1:${port}`,
    [Symbol.asyncDispose]: () => new Promise((resolve) => server.close(() => resolve())),
  };
}

/** A repository with files, a branch and a tag, and with all that its own would have git run on a fetch. */
export function makeRepository(
  root: string,
  name: string,
): { readonly path: string; readonly commits: readonly string[] } {
  const path = join(root, name);
  execFileSync("mkdir", ["-p", join(path, "src")]);
  git(path, "init", "--quiet", "--initial-branch=main", ".");
  execFileSync("sh", ["-c", "echo one >src/file; echo run >tool; chmod +x tool; ln -s src/file link", "sh"], {
    cwd: path,
  });
  git(path, "add", ".");
  git(path, "commit", "--quiet", "-m", "one");
  git(path, "tag", "v1");
  execFileSync(
    "sh",
    ["-c", "echo two >src/file; echo '$Format:%H$' >stamp; echo 'stamp export-subst' >.gitattributes"],
    { cwd: path },
  );
  git(path, "add", ".");
  git(path, "commit", "--quiet", "-m", "two");
  git(path, "config", "uploadpack.allowReachableSHA1InWant", "true");
  return { path, commits: [git(path, "rev-parse", "v1"), git(path, "rev-parse", "main")] };
}
