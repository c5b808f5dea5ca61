import { type Static, Type } from "typebox";
import { WaitMs } from "./commands.ts";
import { closed, described } from "./values.ts";

/** A TCP port. */
const Port = Type.Integer({ minimum: 1, maximum: 65_535 });

/** A socket in a sandbox that takes TCP connections. */
export const ListenerView = closed({
  port: Port,
  address: Type.String({ description: "What it is bound to: 127.0.0.1, 0.0.0.0, ::, …" }),
});
export type ListenerView = Static<typeof ListenerView>;

/** Who listens in a sandbox. */
export const ListenerList = closed({ listeners: Type.Array(ListenerView) });

/** Which port to let a browser to. */
export const PortTicketRequest = closed({ port: Port });

/** Lets a browser to one port: `https://HOST/?dsec-ticket=TICKET` works once. */
export const PortTicket = closed({
  host: Type.String({ description: "The host of the port, without the port of the API." }),
  ticket: Type.String(),
  expiresAtMs: Type.Number(),
});
export type PortTicket = Static<typeof PortTicket>;

/** Which port to wait for, and for how long. */
export const PortWaitQuery = closed({
  port: Port,
  waitMs: Type.Optional(described(WaitMs, "Wait so long for a listener.")),
});

/** Whether somebody listens on the port, where connections to it arrive. */
export const PortWaitReply = closed({
  port: Port,
  listening: described(Type.Boolean(), "False: nobody did before the wait was over."),
});
