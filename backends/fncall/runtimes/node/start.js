// Runs before its call: waits for the words on descriptor 3, then becomes what `node` with these words would have been.
const { closeSync, readSync } = require("node:fs");

const WORDS_LIMIT = 2 * 1024 * 1024;
const message = Buffer.allocUnsafe(WORDS_LIMIT);
const length = readSync(3, message);
// The keeper has gone: there is no call.
if (length === 0) process.exit(0);
closeSync(3);
const size = message.readUInt32LE(0);
const texts = (from, to) => message.toString("utf8", from, to).split("\0").slice(0, -1);
const argv = texts(4, 4 + size);
for (const name of Object.keys(process.env)) delete process.env[name];
for (const variable of texts(4 + size, length)) {
  const at = variable.indexOf("=");
  process.env[variable.slice(0, at)] = variable.slice(at + 1);
}
process.argv = [process.execPath, require("node:path").resolve(argv[1]), ...argv.slice(2)];
process.execArgv = [];
require("node:module").runMain();
