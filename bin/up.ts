import { loadNodeConfig } from "./config.ts";
import { tokenFile } from "./places.ts";
import { serveNode } from "./serve-node.ts";

/** `dsec up`: a node in the foreground. Ctrl-C stops it and removes its sandboxes. `--json`: says where it answers on stdout, too. */
export async function up(argv: readonly string[], env: Readonly<Record<string, string | undefined>>): Promise<number> {
  const json = argv.includes("--json");
  const config = loadNodeConfig(
    argv.filter((word) => word !== "--json"),
    env,
  );
  await serveNode(config, (url) => {
    if (json) process.stdout.write(`${JSON.stringify({ edge: config.edge, url, tokenFile: tokenFile(config) })}\n`);
    process.stderr.write(
      `dsec: node ${config.edge} answers at ${url}, token in ${tokenFile(config)}; Ctrl-C stops it\n`,
    );
  });
  return 0;
}
