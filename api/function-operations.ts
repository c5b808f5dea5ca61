import {
  FunctionReply,
  InvokeFunction,
  InvokeManyEvent,
  InvokeManyRequest,
  PrepareEvent,
  RuntimeList,
} from "./functions.ts";
import { BASE, type Operation } from "./operation.ts";

const FUNCTIONS = "/v1/functions";

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
