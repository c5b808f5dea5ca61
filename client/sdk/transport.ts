import type { Connection } from "./connection.ts";

/** One exchange of a request and a reply; whoever brings another way to the apiserver implements this. */
export interface Transport {
  /** Resolves at the reply's head, whatever its status. Rejects with `TransportError`, or with the signal's reason. */
  request(request: TransportRequest): Promise<TransportReply>;
  /** A WebSocket to the same server, not open yet. It belongs to the caller. */
  socket(path: string, protocols: readonly string[]): WebSocket;
  /** Where a path, with its query, is on this server. */
  url(path: string): string;
  /** Leaves HTTP for a plain connection, or resolves with the reply of a server that refuses. Rejects as `request` does. */
  connect(request: Pick<TransportRequest, "path" | "headers" | "signal">): Promise<Connection | TransportReply>;
  /** Ends idle connections; exchanges under way are broken. */
  close(): void;
}

/** What to send. */
export interface TransportRequest {
  readonly method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  /** With its query, starting with `/`. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array | AsyncIterable<Uint8Array> | undefined;
  readonly signal: AbortSignal | undefined;
}

/** What came back. The body must be read to its end or given up with `discard`, else its connection stays taken. */
export interface TransportReply {
  readonly status: number;
  header(name: string): string | undefined;
  /** Can be read once. Throws `TransportError` when the connection breaks before the body's proper end. */
  readonly body: AsyncIterable<Uint8Array>;
  /** Known once the body has been read to its end. */
  trailer(name: string): string | undefined;
  /** Breaks off a body that nobody wants to its end. */
  discard(): void;
}
