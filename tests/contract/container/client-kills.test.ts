import { clientKillsContract } from "../client-kills.ts";
import { CONTAINER } from "./backend.ts";

clientKillsContract(CONTAINER);
