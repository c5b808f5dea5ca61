import { randomUUID } from "node:crypto";
import type { Static } from "typebox";
import { AttachQuery, OPERATIONS } from "#api/index.ts";
import { parseCommandId } from "#core/ids.ts";
import type { Services } from "../handler.ts";
import { queryReader } from "../query.ts";
import { pathReader, type UpgradeCall, type UpgradeRoute } from "../upgrade.ts";
import { asksForWebSocket, webSocketsOf } from "../websockets.ts";
import { Attachment } from "./attachment.ts";
import { MessageSocket } from "./socket.ts";

/** The subprotocol of an attachment; a client that offers its token as one must offer this as well. */
const PROTOCOL = "dsec.attach";

/** The WebSocket of `attachCommand`: everything that is wrong with the request is told before it is accepted. */
export function attachRoute({ access }: Services): UpgradeRoute {
  const read = pathReader(OPERATIONS.attachCommand.path);
  const readQuery = queryReader(AttachQuery);
  const sockets = webSocketsOf(PROTOCOL);
  return {
    claims: (request) => asksForWebSocket(request) && read(request.url ?? "") !== undefined,
    async take({ principal, request, socket, head, signal }: UpgradeCall) {
      const { url = "" } = request;
      const params = read(url) ?? {};
      const query = readQuery(url) as Static<typeof AttachQuery>;
      const { id, node } = await access.reach(principal, params.id ?? "", signal);
      const command = parseCommandId(params.command ?? "");
      await node.waitCommand(id, command, 0, signal);
      sockets.handleUpgrade(request, socket, head, (websocket) => {
        const target = { id, node, command, writer: randomUUID() };
        void new Attachment(target, query, new MessageSocket(websocket)).run();
      });
    },
  };
}
