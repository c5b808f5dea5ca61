import { create, startNodeWithBase } from "../../support/sandbox.ts";
import type { ContractBackend } from "../backend.ts";

/** Containers over the busybox base. */
export const CONTAINER: ContractBackend = {
  name: "container",
  startNode: startNodeWithBase,
  create: (node, request = {}) => create(node, { backend: "container", ...request }),
};
