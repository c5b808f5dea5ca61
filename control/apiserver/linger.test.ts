import assert from "node:assert/strict";
import { once } from "node:events";
import * as http from "node:http";
import { type AddressInfo, connect } from "node:net";
import { test } from "node:test";
import { linger } from "./linger.ts";

/** More than the buffers on the way to a reader that has stopped. */
const SIZE = 1024 * 1024;

test("a call behind an upload that was answered early is answered, also when a reader of the upload leaves late", async (context) => {
  const server = http.createServer((request, response) => {
    if (request.method === "GET") return void response.end("second");
    const reading = request.iterator({ destroyOnReturn: false });
    void reading.next().then(() => {
      response.statusCode = 410;
      response.end("first");
      linger(request);
      setImmediate(() => void reading.return?.());
    });
  });
  context.after(() => server.close());
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const socket = connect((server.address() as AddressInfo).port, "127.0.0.1");
  socket.write(`PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: ${SIZE}\r\n\r\n`);
  socket.write(Buffer.alloc(SIZE));
  socket.write("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  let text = "";
  for await (const bytes of socket) text += bytes;
  assert.match(text, /^HTTP\/1.1 410 .*first.*HTTP\/1.1 200 .*second/s);
});
