import { agentKillsContract } from "../agent-kills.ts";
import { CONTAINER } from "./backend.ts";

agentKillsContract(CONTAINER);
