import { nodeKillsContract } from "../node-kills.ts";
import { CONTAINER } from "./backend.ts";

nodeKillsContract(CONTAINER);
