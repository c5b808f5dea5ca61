import { once } from "node:events";
import { Client } from "#sdk";
import { OPERATIONS } from "./operations.ts";

/** `client.ts URL SANDBOX OPERATION`: does it, and at each of its points says so and waits for a word. For whoever kills it there. */
const [url = "", id = "", name] = process.argv.slice(2);
const client = new Client({ url, token: process.env.TOKEN });
const operation = OPERATIONS.find((each) => each.name === name);
if (operation === undefined) throw new Error(`no operation ${name}`);
await operation.act(client.sandboxes.use(id), async () => {
  process.stdout.write("reached\n");
  await once(process.stdin, "data");
});
process.exit();
