import {
  CallQuery,
  CallView,
  FunctionReply,
  InvokeFunction,
  InvokeManyEvent,
  InvokeManyRequest,
  PrepareEvent,
  RuntimeList,
  StartedCall,
} from "./functions.ts";
import { BASE, type Operation } from "./operation.ts";

const FUNCTIONS = "/v1/functions";
const CALL = `${FUNCTIONS}/calls/{call}` as const;

/** The calls about functions, by name. */
export const FUNCTION_OPERATIONS = {
  invokeFunction: {
    ...BASE,
    method: "POST",
    path: FUNCTIONS,
    summary: "Run a program once, without a sandbox, and return what became of it.",
    body: InvokeFunction,
    reply: FunctionReply,
  },
  startFunction: {
    ...BASE,
    method: "POST",
    path: `${FUNCTIONS}/calls`,
    summary: "Take a call on and answer at once; its result waits for ten minutes.",
    body: InvokeFunction,
    status: 201,
    reply: StartedCall,
  },
  awaitFunction: {
    ...BASE,
    method: "GET",
    path: CALL,
    summary: "A call that was started, at its end or after a while.",
    query: CallQuery,
    reply: CallView,
  },
  dropFunction: {
    ...BASE,
    method: "DELETE",
    path: CALL,
    summary: "Give a started call up, or its result.",
    status: 204,
  },
  invokeMany: {
    ...BASE,
    method: "POST",
    path: `${FUNCTIONS}/batch`,
    summary: "Run many programs; answers with a line for each as it is done.",
    body: InvokeManyRequest,
    reply: { line: InvokeManyEvent },
    streams: true,
  },
  listRuntimes: {
    ...BASE,
    method: "GET",
    path: `${FUNCTIONS}/runtimes`,
    summary: "What programs can be written in.",
    reply: RuntimeList,
  },
  prepareRuntime: {
    ...BASE,
    method: "POST",
    path: `${FUNCTIONS}/runtimes/{runtime}/prepare`,
    summary: "Make a runtime's base ahead of its first call; answers with lines of progress.",
    reply: { line: PrepareEvent },
    streams: true,
  },
} as const satisfies Record<string, Operation>;
